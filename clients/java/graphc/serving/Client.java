package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

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
 */
public final class Client {
  private static final Map<Integer, String> CODES =
      Map.of(
          401, "UNAUTHENTICATED", 404, "NOT_FOUND", 405, "UNIMPLEMENTED", 408, "DEADLINE_EXCEEDED",
          429, "RESOURCE_EXHAUSTED", 499, "CANCELLED", 501, "UNIMPLEMENTED", 503, "UNAVAILABLE",
          504, "DEADLINE_EXCEEDED");
  private static final String TEXT = "\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\""; // a string of JSON
  private static final Pattern ERROR = Pattern.compile("\"error\"\\s*:\\s*" + TEXT);
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
    return post(target, "predict", "application/x-protobuf", body, Wire::readResponse);
  }

  /** The state of each version of a model: {3=AVAILABLE}. */
  public Map<Long, String> status(String model) {
    return await(send(request(Target.of(model).path()).GET(), Client::readStatus));
  }

  /** The signatures of a model, as JSON. */
  public String metadata(Target target) {
    return await(send(request(target.path() + "/metadata").GET(), body -> new String(body, UTF_8)));
  }

  /** The response to a body of JSON. The verb is "predict", "classify" or "regress". */
  public String json(Target target, String verb, String body) {
    byte[] bytes = body.getBytes(UTF_8);
    return await(post(target, verb, "application/json", bytes, found -> new String(found, UTF_8)));
  }

  private <T> CompletableFuture<T> post(
      Target target, String verb, String type, byte[] body, Function<byte[], T> read) {
    HttpRequest.Builder request = request(target.path() + ":" + verb).header("content-type", type);
    return send(request.POST(BodyPublishers.ofByteArray(body)), read);
  }

  private HttpRequest.Builder request(String path) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address + path));
    return token == null ? request : request.header("authorization", "Bearer " + token);
  }

  private <T> CompletableFuture<T> send(HttpRequest.Builder request, Function<byte[], T> read) {
    CompletableFuture<HttpResponse<byte[]>> sent =
        http.sendAsync(request.build(), BodyHandlers.ofByteArray());
    CompletableFuture<T> result =
        sent.copy()
            .orTimeout(timeout.toMillis(), MILLISECONDS)
            .handle((response, error) -> finish(response, error, read));
    result.whenComplete((value, error) -> sent.cancel(true)); // also after the time limit
    return result;
  }

  private <T> T finish(HttpResponse<byte[]> response, Throwable error, Function<byte[], T> read) {
    if (error instanceof TimeoutException) {
      String message = "no answer within " + timeout.toMillis() + " ms";
      throw new ServingException(0, "DEADLINE_EXCEEDED", message, error);
    }
    if (error != null) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      throw new ServingException(0, "UNAVAILABLE", address + ": " + cause, cause);
    }
    int status = response.statusCode();
    if (status != 200) {
      String code = CODES.getOrDefault(status, status < 500 ? "INVALID_ARGUMENT" : "INTERNAL");
      throw new ServingException(status, code, errorText(response.body()), null);
    }
    try {
      return read.apply(response.body());
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
      Thread.currentThread().interrupt();
      throw new ServingException(0, "CANCELLED", "the thread was interrupted", error);
    }
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
