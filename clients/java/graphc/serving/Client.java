package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.ProtocolException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpResponse.BodySubscribers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
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
 * a client. Every call throws a {@link ServingException} if it fails.
 *
 * <p>A request whose connection ends before the answer begins is sent once more, on a new connection.
 * The server does not make a run of a session twice.
 */
public final class Client {
  private static final String PROTOBUF = "application/x-protobuf";
  private static final String TEXT = "\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\""; // a string of JSON
  private static final Pattern ERROR = Pattern.compile("\"error\"\\s*:\\s*" + TEXT);
  private static final Pattern CODE = Pattern.compile("\"code\"\\s*:\\s*\"(\\w+)\"");
  private static final Pattern VERSION =
      Pattern.compile("\"version\"\\s*:\\s*\"(\\d+)\"\\s*,\\s*\"state\"\\s*:\\s*\"(\\w+)\"");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");

  // Of all HttpClients: each would have threads of its own, and a second try makes an HttpClient.
  private static final Executor THREADS = Executors.newCachedThreadPool(Client::daemon);

  private final HttpClient http;
  private final Supplier<HttpClient> second; // makes the client of a second try, without connections
  private final String address;
  private final String token;
  private final Duration timeout;

  /** A client of the server at an address such as {@code http://localhost:8501}. */
  public Client(String address) {
    this(newHttp(), Client::newHttp, address.replaceAll("/+$", ""), null, Duration.ofSeconds(30));
  }

  private Client(
      HttpClient http,
      Supplier<HttpClient> second,
      String address,
      String token,
      Duration timeout) {
    this.http = http;
    this.second = second;
    this.address = address;
    this.token = token;
    this.timeout = timeout;
  }

  private static HttpClient newHttp() {
    // Version 1.1, because a request to change to HTTP/2 would be refused.
    return HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).executor(THREADS).build();
  }

  private static Thread daemon(Runnable task) {
    Thread thread = new Thread(task);
    thread.setDaemon(true);
    return thread;
  }

  /** This client with a bearer token. */
  public Client withToken(String token) {
    return new Client(http, second, address, token, timeout);
  }

  /** This client with the time that a call may take; 30 seconds by default. */
  public Client withTimeout(Duration timeout) {
    return new Client(http, second, address, token, timeout);
  }

  /**
   * This client with an HTTP client of your own, for example with another SSLContext or a proxy. It
   * chooses the connections, also those of second tries.
   */
  public Client withHttp(HttpClient http) {
    return new Client(http, () -> http, address, token, timeout);
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
    return send(post(target.path() + ":predict", PROTOBUF, body), Wire::readResponse);
  }

  /** The state of each version of a model: {3=AVAILABLE}. */
  public Map<Long, String> status(String model) {
    return await(send(request(Target.of(model).path()).GET(), Client::readStatus));
  }

  /** The signatures of a model, as JSON. */
  public String metadata(Target target) {
    HttpRequest.Builder request = request(target.path() + "/metadata").GET();
    return await(send(request, body -> new String(body, UTF_8)));
  }

  /** The response to a body of JSON. The verb is "predict", "classify" or "regress". */
  public String json(Target target, String verb, String body) {
    byte[] bytes = body.getBytes(UTF_8);
    String path = target.path() + ":" + verb;
    HttpRequest.Builder request = post(path, "application/json", bytes);
    return await(send(request, found -> new String(found, UTF_8)));
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
    HttpRequest.Builder request =
        post(target.path() + "/sessions", "application/json", body.getBytes(UTF_8));
    // Sent twice, it may open two sessions. One of them expires, as nobody uses it.
    return await(send(request, found -> new Session(this, path, target.model(), found)));
  }

  /** One run of a session. */
  Map<String, Tensor> step(String path, byte[] body) {
    return await(send(post(path, PROTOBUF, body), Wire::readResponse));
  }

  void delete(String path) {
    await(send(request(path).DELETE(), body -> body));
  }

  /** The body of a response, as it arrives. */
  InputStream open(String path, byte[] body, Duration timeout) {
    HttpRequest.Builder request = post(path, PROTOBUF, body);
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

  private HttpRequest.Builder post(String path, String type, byte[] body) {
    return request(path).header("content-type", type).POST(BodyPublishers.ofByteArray(body));
  }

  private HttpRequest.Builder request(String path) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address + path));
    return token == null ? request : request.header("authorization", "Bearer " + token);
  }

  /** What is read in the response. The server may get the request twice. */
  private <T> CompletableFuture<T> send(HttpRequest.Builder request, Function<byte[], T> read) {
    CompletableFuture<HttpResponse<byte[]>> answer = new CompletableFuture<>();
    answer.orTimeout(timeout.toMillis(), MILLISECONDS); // of both tries
    attempt(http, request.build(), true, answer);
    CompletableFuture<T> result =
        answer.handle((response, error) -> finish(response, error, read));
    result.whenComplete((value, error) -> answer.cancel(true));
    return result;
  }

  private void attempt(
      HttpClient client,
      HttpRequest request,
      boolean again,
      CompletableFuture<HttpResponse<byte[]>> answer) {
    AtomicBoolean hasBegun = new AtomicBoolean(); // the response
    CompletableFuture<HttpResponse<byte[]>> sent =
        client.sendAsync(
            request,
            head -> {
              hasBegun.set(true);
              return BodySubscribers.ofByteArray();
            });
    sent.whenComplete(
        (response, error) -> {
          Throwable cause = error instanceof CompletionException ? error.getCause() : error;
          if (again && !hasBegun.get() && isEnd(cause) && !answer.isDone()) {
            attempt(second.get(), request, false, answer);
          } else if (error != null) {
            answer.completeExceptionally(cause);
          } else {
            answer.complete(response);
          }
        });
    answer.whenComplete((response, error) -> sent.cancel(true)); // also after the time limit
  }

  /** Whether it may be the end of a connection that the server closed while it was idle. */
  private static boolean isEnd(Throwable error) {
    return error instanceof IOException
        && !(error instanceof ConnectException)
        && !(error instanceof HttpTimeoutException)
        && !(error instanceof ProtocolException) // the answer is not HTTP
        && !(error instanceof SSLException);
  }

  private <T> T finish(HttpResponse<byte[]> response, Throwable error, Function<byte[], T> read) {
    if (error instanceof TimeoutException) {
      throw late(timeout, error);
    }
    if (error != null) {
      throw new ServingException(0, "UNAVAILABLE", address + ": " + error, error);
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
    return new ServingException(status, codeOf(status), errorText(body), null);
  }

  private static String codeOf(int status) {
    return switch (status) {
      case 401 -> "UNAUTHENTICATED";
      case 404, 410 -> "NOT_FOUND";
      case 405, 501 -> "UNIMPLEMENTED";
      case 408, 504 -> "DEADLINE_EXCEEDED";
      case 409 -> "ABORTED";
      case 429 -> "RESOURCE_EXHAUSTED";
      case 499 -> "CANCELLED";
      case 503 -> "UNAVAILABLE";
      default -> status < 500 ? "INVALID_ARGUMENT" : "INTERNAL";
    };
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
