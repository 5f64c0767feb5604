package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Variables of a client on the server, for signatures that update variables, such as a decoder with
 * its cache. {@link Client#session} opens a session; {@code close} ends it.
 *
 * <pre>{@code
 * try (Session session = client.session(Target.of("writer"))) {
 *   Plan plan = Plan.of(20).feedback("tokens", "next");
 *   try (Steps steps = session.generate(plan, Map.of("tokens", prompt))) {
 *     for (Map<String, Tensor> outputs : steps) {
 *       System.out.println(outputs.get("next").ints()[0]);
 *     }
 *   }
 * }
 * }</pre>
 */
public final class Session implements AutoCloseable {
  private static final Pattern ID = Pattern.compile("\"session_id\"\\s*:\\s*\"([\\w-]+)\"");
  private static final Pattern VERSION = Pattern.compile("\"version\"\\s*:\\s*\"(\\d+)\"");

  private final Client client;
  private final String path;
  private final String id;
  private final String model;
  private final long version;
  private long number; // of the last request
  private byte[] failed; // the last request of predict, if it failed

  Session(Client client, String path, String model, byte[] response) {
    String text = new String(response, UTF_8);
    this.client = client;
    this.id = group(ID, text);
    this.path = path + "/sessions/" + id;
    this.model = model;
    this.version = Long.parseLong(group(VERSION, text));
  }

  private static String group(Pattern pattern, String text) {
    Matcher found = pattern.matcher(text);
    if (!found.find()) {
      throw new IllegalArgumentException("it is no session");
    }
    return found.group(1);
  }

  /** Its name on the server. */
  public String id() {
    return id;
  }

  /** The model of which it is. */
  public String model() {
    return model;
  }

  /** The version of the model. */
  public long version() {
    return version;
  }

  /** The outputs of one run of the session's signature. It assigns variables of the session. */
  public Map<String, Tensor> predict(Map<String, Tensor> inputs) {
    return predict("", inputs);
  }

  /**
   * The outputs of one run of a signature; only those that are named, or all. A call that failed may
   * be repeated: if the server has run it, the outputs are those of that run. Calls of several
   * threads follow each other.
   */
  public synchronized Map<String, Tensor> predict(
      String signature, Map<String, Tensor> inputs, String... outputs) {
    Plan plan = Plan.of(0).signature(signature).outputs(outputs);
    byte[] body = Wire.writeSessionRequest(plan, inputs);
    if (!Arrays.equals(body, failed)) {
      number++;
    }
    failed = body;
    try {
      Map<String, Tensor> found = client.step(path + ":predict", Wire.numbered(body, number));
      failed = null;
      return found;
    } catch (ServingException error) {
      if (error.code().equals("ABORTED")) {
        failed = null; // the number was used
      }
      throw error;
    }
  }

  /**
   * The outputs of several runs, as the server computes them. If the steps are closed earlier, the
   * server completes the run in progress, and begins no other. If the request arrives twice, because
   * a proxy repeats it, the code of the error is ABORTED.
   *
   * @param inputs of the first run; in the others they are the same, except for the feedback.
   */
  public Steps generate(Plan plan, Map<String, Tensor> inputs) {
    byte[] body = Wire.numbered(Wire.writeSessionRequest(plan, inputs), next());
    return new Steps(client, path + ":generate", body, plan.timeout());
  }

  private synchronized long next() {
    failed = null;
    return ++number;
  }

  /** Ends the session, if it has not ended. */
  @Override
  public void close() {
    try {
      client.delete(path);
    } catch (ServingException error) {
      if (!error.code().equals("NOT_FOUND")) {
        throw error;
      }
    }
  }

  /**
   * Several runs: at most {@code steps}. Feedback maps an input to the output of the run before. Stop
   * maps outputs to values: a run is the last one if all elements of the output are among them.
   * Without a timeout, which is for all runs together, only the server limits each run.
   */
  public record Plan(
      int steps,
      Map<String, String> feedback,
      Map<String, Tensor> stop,
      String signature,
      List<String> outputs,
      Duration timeout) {
    public static Plan of(int steps) {
      return new Plan(steps, Map.of(), Map.of(), "", List.of(), null);
    }

    public Plan feedback(String input, String output) {
      return new Plan(steps, with(feedback, input, output), stop, signature, outputs, timeout);
    }

    public Plan stop(String output, Tensor values) {
      return new Plan(steps, feedback, with(stop, output, values), signature, outputs, timeout);
    }

    public Plan signature(String signature) {
      return new Plan(steps, feedback, stop, signature, outputs, timeout);
    }

    /** Only these outputs; by default all. */
    public Plan outputs(String... outputs) {
      return new Plan(steps, feedback, stop, signature, List.of(outputs), timeout);
    }

    public Plan timeout(Duration timeout) {
      return new Plan(steps, feedback, stop, signature, outputs, timeout);
    }

    private static <T> Map<String, T> with(Map<String, T> all, String name, T value) {
      Map<String, T> more = new LinkedHashMap<>(all);
      more.put(name, value);
      return more;
    }
  }
}
