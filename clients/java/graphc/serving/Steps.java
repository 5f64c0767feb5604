package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Base64;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * The outputs of the runs of {@link Session#generate}, as they arrive. It is read once, by one
 * thread; any thread may close it.
 */
public final class Steps
    implements Iterator<Map<String, Tensor>>, Iterable<Map<String, Tensor>>, AutoCloseable {
  private final Client client;
  private final Duration timeout;
  private final InputStream stream;
  private final BufferedReader lines;
  private volatile boolean isLate;
  private volatile boolean isClosed;
  private Map<String, Tensor> next;
  private boolean hasEnded;

  Steps(Client client, String path, byte[] body, Duration timeout) {
    this.client = client;
    this.timeout = timeout;
    this.stream = client.open(path, body, timeout);
    this.lines = new BufferedReader(new InputStreamReader(stream, UTF_8));
    if (timeout != null) {
      Executor later = CompletableFuture.delayedExecutor(timeout.toMillis(), MILLISECONDS);
      later.execute(this::expire);
    }
  }

  @Override
  public Iterator<Map<String, Tensor>> iterator() {
    return this;
  }

  @Override
  public boolean hasNext() {
    if (next == null && !hasEnded) {
      next = read();
      hasEnded = next == null;
    }
    return next != null;
  }

  @Override
  public Map<String, Tensor> next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Map<String, Tensor> found = next;
    next = null;
    return found;
  }

  @Override
  public void close() {
    isClosed = true;
    try {
      stream.close();
    } catch (IOException error) {
      // the connection is closed in any case
    }
  }

  private void expire() {
    if (!isClosed) {
      isLate = true;
      close();
    }
  }

  /** The outputs of the next event; null after the last one. */
  private Map<String, Tensor> read() {
    String kind = "";
    String data = "";
    try {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        if (line.startsWith("event: ")) {
          kind = line.substring(7);
        } else if (line.startsWith("data: ")) {
          data = line.substring(6);
        } else if (line.isEmpty()) {
          return event(kind, data);
        }
      }
    } catch (IOException error) {
      throw ended(error);
    }
    throw ended(null);
  }

  private Map<String, Tensor> event(String kind, String data) {
    if (kind.isEmpty()) {
      return client.read(Base64.getDecoder().decode(data), Wire::readResponse);
    }
    close();
    hasEnded = true;
    if (kind.equals("error")) {
      throw Client.failureOf(data);
    }
    return null;
  }

  private ServingException ended(IOException cause) {
    hasEnded = true;
    boolean early = !isLate;
    close();
    if (early) {
      return new ServingException(0, "UNAVAILABLE", "the stream ended early", cause);
    }
    String message = "the stream did not end within " + timeout.toMillis() + " ms";
    return new ServingException(0, "DEADLINE_EXCEEDED", message, cause);
  }
}
