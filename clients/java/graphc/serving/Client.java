package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLException;

/**
 * A client of {@code graphc serve} for Java 17 or newer, without dependencies.
 *
 * <pre>{@code
 * Client client = new Client("http://localhost:8501");
 * Tensor x = Tensor.of(new float[] {1, 0, 0}).reshape(1, 3);
 * float[] scores = client.predict("flowers", Map.of("x", x)).get("scores").floats();
 * }</pre>
 *
 * <p>Arrays are sent and received in binary form: every number arrives bit by bit. Threads may share
 * a client. Every call throws a {@link ServingException} if it fails. A request whose connection the
 * server closes is sent once more, unless it runs or closes a session.
 */
public final class Client {
  private static final Map<Integer, String> CODES =
      Map.of(
          401, "UNAUTHENTICATED", 404, "NOT_FOUND", 405, "UNIMPLEMENTED", 408, "DEADLINE_EXCEEDED",
          410, "NOT_FOUND", 429, "RESOURCE_EXHAUSTED", 499, "CANCELLED", 501, "UNIMPLEMENTED", 503, "UNAVAILABLE",
          504, "DEADLINE_EXCEEDED");
  private static final String PROTOBUF = "application/x-protobuf";
  private static final String TEXT = "\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\""; // a string of JSON
  private static final Pattern ERROR = Pattern.compile("\"error\"\\s*:\\s*" + TEXT);
  private static final Pattern CODE = Pattern.compile("\"code\"\\s*:\\s*\"(\\w+)\"");
  private static final Pattern VERSION =
      Pattern.compile("\"version\"\\s*:\\s*\"(\\d+)\"\\s*,\\s*\"state\"\\s*:\\s*\"(\\w+)\"");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");

  private final HttpClient http;
  private final String address;
  private final String token;
  private final Duration timeout;

  /** A client of the server at an address such as {@code http://localhost:8501}. */
  public Client(String address) {
    // Version 1.1, because a request to change to HTTP/2 would be refused.
    this(
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build(),
        address.replaceAll("/+$", ""),
        null,
        Duration.ofSeconds(30));
  }

  private Client(HttpClient http, String address, String token, Duration timeout) {
    this.http = http;
    this.address = address;
    this.token = token;
    this.timeout = timeout;
  }

  /** This client with a bearer token. */
  public Client withToken(String token) {
    return new Client(http, address, token, timeout);
  }

  /** This client with the time that a call may take; 30 seconds by default. */
  public Client withTimeout(Duration timeout) {
    return new Client(http, address, token, timeout);
  }

  /** This client with an HTTP client of your own, for example with another SSLContext or a proxy. */
  public Client withHttp(HttpClient http) {
    return new Client(http, address, token, timeout);
  }

  /** The outputs of the default signature of a model. */
  public Map<String, Tensor> predict(String model, Map<String, Tensor> inputs) {
    return predict(Target.of(model), inputs);
  }

  /** The outputs of a signature. */
  public Map<String, Tensor> predict(Target target, Map<String, Tensor> inputs) {
    return await(predictAsync(target, inputs));
  }

  /** The same, later. Cancelling the future ends the request. */
  public CompletableFuture<Map<String, Tensor>> predictAsync(
      Target target, Map<String, Tensor> inputs) {
    byte[] body = Wire.writeRequest(target, inputs);
    HttpRequest request = post(target.path() + ":predict", PROTOBUF, body);
    return sendRepeatable(request, Wire::readResponse);
  }

  /** The state of each version of a model: {3=AVAILABLE}. */
  public Map<Long, String> status(String model) {
    HttpRequest request = request(Target.of(model).path()).GET().build();
    return await(sendRepeatable(request, Client::readStatus));
  }

  /** The signatures of a model, as JSON. */
  public String metadata(Target target) {
    HttpRequest request = request(target.path() + "/metadata").GET().build();
    return await(sendRepeatable(request, body -> new String(body, UTF_8)));
  }

  /** The response to a body of JSON. The verb is "predict", "classify" or "regress". */
  public String json(Target target, String verb, String body) {
    HttpRequest request =
        post(target.path() + ":" + verb, "application/json", body.getBytes(UTF_8));
    return await(sendRepeatable(request, found -> new String(found, UTF_8)));
  }

  /** A session of a model, which draws the random numbers that follow in the saved model. */
  public Session session(Target target) {
    return session(target, null);
  }

  /** The same with a seed. The signature of the target is that of calls that name none. */
  public Session session(Target target, Long seed) {
    String body = "{\"signature_name\": " + jsonText(target.signature());
    body += seed == null ? "}" : ", \"seed\": " + seed + "}";
    String path = Target.of(target.model()).path();
    HttpRequest request =
        post(target.path() + "/sessions", "application/json", body.getBytes(UTF_8));
    return await(sendRepeatable(request, found -> new Session(this, path, target.model(), found)));
  }

  /** One run of a session. */
  Map<String, Tensor> step(String path, byte[] body) {
    return await(send(post(path, PROTOBUF, body), false, Wire::readResponse));
  }

  void delete(String path) {
    await(send(request(path).DELETE().build(), false, body -> body));
  }

  /** The body of a response, as it arrives. */
  InputStream open(String path, byte[] body, Duration timeout) {
    HttpRequest.Builder request = request(path).header("content-type", PROTOBUF);
    request.POST(BodyPublishers.ofByteArray(body));
    if (timeout != null) {
      request.timeout(timeout);
    }
    HttpResponse<InputStream> response;
    try {
      response = http.send(request.build(), BodyHandlers.ofInputStream());
      if (response.statusCode() != 200) {
        throw failureOf(response.statusCode(), response.body().readAllBytes());
      }
    } catch (HttpTimeoutException error) {
      throw late(timeout, error);
    } catch (IOException error) {
      throw new ServingException(0, "UNAVAILABLE", address + ": " + error, error);
    } catch (InterruptedException error) {
      throw interrupted(error);
    }
    return response.body();
  }

  private HttpRequest post(String path, String type, byte[] body) {
    HttpRequest.Builder request = request(path).header("content-type", type);
    return request.POST(BodyPublishers.ofByteArray(body)).build();
  }

  private HttpRequest.Builder request(String path) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address + path));
    return token == null ? request : request.header("authorization", "Bearer " + token);
  }

  /**
   * Sends a request that changes nothing that a caller has seen. It is sent once more if its
   * connection ends, because a server may close an idle connection while a request is on its way.
   */
  private <T> CompletableFuture<T> sendRepeatable(HttpRequest request, Function<byte[], T> read) {
    return send(request, true, read);
  }

  private <T> CompletableFuture<T> send(
      HttpRequest request, boolean isRepeatable, Function<byte[], T> read) {
    AtomicReference<CompletableFuture<?>> running = new AtomicReference<>();
    Supplier<CompletableFuture<HttpResponse<byte[]>>> exchange =
        () -> {
          CompletableFuture<HttpResponse<byte[]>> sent =
              http.sendAsync(request, BodyHandlers.ofByteArray());
          running.set(sent);
          return sent.copy();
        };
    CompletableFuture<T> result =
        exchange
            .get()
            .exceptionallyCompose(
                error ->
                    isRepeatable && isClosed(causeOf(error))
                        ? exchange.get()
                        : CompletableFuture.failedFuture(error))
            .orTimeout(timeout.toMillis(), MILLISECONDS)
            .handle((response, error) -> finish(response, error, read));
    result.whenComplete((value, error) -> running.get().cancel(true)); // also after the time limit
    return result;
  }

  /** Whether this is the error of a connection that was established and then ended. */
  private static boolean isClosed(Throwable error) {
    boolean never =
        error instanceof ConnectException
            || error instanceof HttpTimeoutException
            || error instanceof SSLException;
    return error instanceof IOException && !never;
  }

  private static Throwable causeOf(Throwable error) {
    return error.getCause() == null ? error : error.getCause();
  }

  private <T> T finish(HttpResponse<byte[]> response, Throwable error, Function<byte[], T> read) {
    if (error instanceof TimeoutException) {
      throw late(timeout, error);
    }
    if (error != null) {
      Throwable cause = causeOf(error);
      throw new ServingException(0, "UNAVAILABLE", address + ": " + cause, cause);
    }
    if (response.statusCode() != 200) {
      throw failureOf(response.statusCode(), response.body());
    }
    return read(response.body(), read);
  }

  /** What a function reads in a response. */
  <T> T read(byte[] body, Function<byte[], T> read) {
    try {
      return read.apply(body);
    } catch (RuntimeException wrong) {
      String message = "the response cannot be read: " + wrong;
      throw new ServingException(200, "INTERNAL", message, wrong);
    }
  }

  private static <T> T await(CompletableFuture<T> future) {
    try {
      return future.get();
    } catch (ExecutionException error) {
      throw ((ServingException) error.getCause()).here();
    } catch (InterruptedException error) {
      future.cancel(true);
      throw interrupted(error);
    }
  }

  private static ServingException interrupted(InterruptedException error) {
    Thread.currentThread().interrupt();
    return new ServingException(0, "CANCELLED", "the thread was interrupted", error);
  }

  private static ServingException late(Duration timeout, Throwable error) {
    String message = "no answer within " + timeout.toMillis() + " ms";
    return new ServingException(0, "DEADLINE_EXCEEDED", message, error);
  }

  private static ServingException failureOf(int status, byte[] body) {
    String code = CODES.getOrDefault(status, status < 500 ? "INVALID_ARGUMENT" : "INTERNAL");
    return new ServingException(status, code, errorText(body), null);
  }

  /** The error in an event of a stream. */
  static ServingException failureOf(String data) {
    Matcher code = CODE.matcher(data);
    String found = code.find() ? code.group(1) : "INTERNAL";
    return new ServingException(200, found, errorText(data.getBytes(UTF_8)), null);
  }

  private static String jsonText(String text) {
    return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }

  private static Map<Long, String> readStatus(byte[] body) {
    String text = new String(body, UTF_8);
    if (!text.contains("\"model_version_status\"")) {
      throw new IllegalArgumentException("it has no model_version_status");
    }
    Map<Long, String> states = new TreeMap<>();
    Matcher found = VERSION.matcher(text);
    while (found.find()) {
      states.put(Long.parseLong(found.group(1)), found.group(2));
    }
    return states;
  }

  private static String errorText(byte[] body) {
    String text = new String(body, UTF_8);
    Matcher found = ERROR.matcher(text);
    if (!found.find()) {
      return text.substring(0, Math.min(text.length(), 200));
    }
    return ESCAPE
        .matcher(found.group(1))
        .replaceAll(escape -> Matcher.quoteReplacement(unescaped(escape)));
  }

  private static String unescaped(MatchResult escape) {
    if (escape.group(1) != null) {
      return String.valueOf((char) Integer.parseInt(escape.group(1), 16));
    }
    int kind = "bfnrt".indexOf(escape.group(2));
    return kind < 0 ? escape.group(2) : String.valueOf("\b\f\n\r\t".charAt(kind));
  }

  /** What a call names: a model; by default the server chooses the version and the signature. */
  public record Target(
      String model, Long version, String label, String signature, List<String> outputs) {
    public static Target of(String model) {
      return new Target(model, null, null, "", List.of());
    }

    public Target version(long version) {
      return new Target(model, version, null, signature, outputs);
    }

    public Target label(String label) {
      return new Target(model, null, label, signature, outputs);
    }

    public Target signature(String signature) {
      return new Target(model, version, label, signature, outputs);
    }

    /** Only these outputs; by default all. For {@code predict}. */
    public Target outputs(String... outputs) {
      return new Target(model, version, label, signature, List.of(outputs));
    }

    private String path() {
      String path = "/v1/models/" + quoted(model);
      if (version != null) {
        return path + "/versions/" + version;
      }
      return label == null ? path : path + "/labels/" + quoted(label);
    }

    private static String quoted(String name) {
      return URLEncoder.encode(name, UTF_8).replace("+", "%20");
    }
  }
}
