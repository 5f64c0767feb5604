import graphc.serving.Client;
import graphc.serving.Client.Target;
import graphc.serving.ServingException;
import graphc.serving.Tensor;
import graphc.serving.Tensor.Type;
import graphc.serving.Session;
import graphc.serving.Session.Plan;
import graphc.serving.Steps;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/** What the Java client does. The arguments are the servers of conftest.py: NAME=ADDRESS. */
public final class Checks {
  private static final Map<String, String> SERVERS = new HashMap<>();
  private static final Map<String, Tensor> NOTHING = Map.of();
  private static final float[] FLOATS = {
    0, -0f, 0.1f, 1e21f, Float.MIN_VALUE, Float.MAX_VALUE, Float.NaN, Float.POSITIVE_INFINITY
  };
  private static final double[] DOUBLES = {0.1 + 0.2, -0.0, Double.MIN_VALUE, Double.MAX_VALUE, Double.NaN};

  public static void main(String[] arguments) {
    for (String each : arguments) {
      SERVERS.put(each.split("=")[0], each.split("=")[1]);
    }
    Map<String, Runnable> checks = new LinkedHashMap<>();
    checks.put("predict", Checks::predict);
    checks.put("every type", Checks::everyType);
    checks.put("a large array", Checks::aLargeArray);
    checks.put("signatures and outputs", Checks::signaturesAndOutputs);
    checks.put("json", Checks::json);
    checks.put("errors of the server", Checks::errorsOfTheServer);
    checks.put("tokens", Checks::tokens);
    checks.put("deadlines", Checks::deadlines);
    checks.put("cancelling", Checks::cancelling);
    checks.put("no server", Checks::noServer);
    checks.put("closed connections", Checks::closedConnections);
    checks.put("other servers", Checks::otherServers);
    checks.put("sessions", Checks::sessions);
    checks.put("lost answers", Checks::lostAnswers);
    checks.put("streams of sessions", Checks::streamsOfSessions);
    checks.put("streams that fail", Checks::streamsThatFail);
    checks.put("tensors", Checks::tensors);
    checks.forEach(Checks::run);
    System.exit(0);
  }

  private static void run(String name, Runnable check) {
    try {
      check.run();
      System.out.println("ok " + name);
    } catch (RuntimeException | AssertionError error) {
      System.out.println("failed " + name + ": " + error + Arrays.toString(error.getStackTrace()));
    }
  }

  private static Map<String, Tensor> x(int... values) {
    return Map.of("x", Tensor.of(values));
  }

  private static int total(Map<String, Tensor> outputs) {
    return outputs.get("total").ints()[0];
  }

  private static void sessions() {
    Client client = client("counter");
    long seed = (1L << 62) + 40;
    Session session = client.session(Target.of("counter").signature("twice"), seed);
    same(List.of(session.model(), session.version()), List.of("counter", 1L));
    Map<String, Tensor> outputs = session.predict(x(1, 2));
    same(outputs.get("x").ints(), new int[] {1, 2});
    same(total(outputs), 46);
    outputs = session.predict("add", x(1, 2), "total");
    same(outputs.keySet(), Set.of("total"));
    same(total(outputs), 49);
    try (Session other = client.session(Target.of("counter").version(1))) {
      same(total(other.predict("add", x(1, 2))), 3); // it has a total of its own
    }
    session.close();
    session.close();
    ServingException ended = failure(() -> session.predict(x(1)));
    same(List.of(ended.status(), ended.code()), List.of(404, "NOT_FOUND"));
    same(failure(() -> client.session(Target.of("other"))).code(), "NOT_FOUND");
    Target quoted = Target.of("counter").signature("a\"\\");
    same(failure(() -> client.session(quoted)).code(), "INVALID_ARGUMENT");
  }

  private static List<Integer> totals(Session session, Plan plan) {
    List<Integer> found = new ArrayList<>();
    try (Steps steps = session.generate(plan, x(1))) {
      for (Map<String, Tensor> outputs : steps) {
        same(outputs.keySet(), Set.of("total"));
        found.add(total(outputs));
      }
    }
    return found;
  }

  private static void streamsOfSessions() {
    Session session = client("counter").session(Target.of("counter").signature("add"));
    Plan plan = Plan.of(9).outputs("total");
    same(totals(session, Plan.of(3).outputs("total")), List.of(1, 2, 3));
    Plan fed = Plan.of(4).outputs("total").feedback("x", "total");
    same(totals(session, fed), List.of(4, 8, 16, 32));
    same(totals(session, plan.stop("total", Tensor.of(new int[] {34, 36}))), List.of(33, 34));
    same(totals(session, Plan.of(2).outputs("total").signature("twice")), List.of(36, 38));
    try (Steps steps = session.generate(Plan.of(100_000), x(1))) {
      same(total(steps.next()), 39); // the server begins no run after those in progress
    }
    if (total(session.predict(x(1))) > 50_000) {
      throw new AssertionError("the server went on");
    }
    ServingException wrong = failure(() -> totals(session, Plan.of(0).outputs("total")));
    same(List.of(wrong.status(), wrong.code()), List.of(400, "INVALID_ARGUMENT"));
    session.close();
    same(failure(() -> totals(session, plan)).code(), "NOT_FOUND");
  }

  private static void streamsThatFail() {
    Session session = client("counter").session(Target.of("counter").signature("add"), 1000L);
    Steps steps = session.generate(Plan.of(9).feedback("x", "total"), x(1));
    same(total(steps.next()), 1001); // which the server refuses in the next run
    ServingException failed = failure(steps::hasNext);
    same(List.of(failed.code(), failed.getMessage()), List.of("INTERNAL", "the run failed"));
    same(steps.hasNext(), false);
    Plan slow = Plan.of(1 << 30).outputs("total").timeout(Duration.ofMillis(200));
    ServingException late = failure(() -> totals(session, slow));
    same(List.of(late.status(), late.code()), List.of(0, "DEADLINE_EXCEEDED"));
    session.close();
    Client foreign = client("foreign");
    for (String[] each :
        new String[][] {
          {"cut", "INTERNAL", "g\u00fc"}, {"early", "UNAVAILABLE", "the stream ended early"}
        }) {
      Session other = foreign.session(Target.of(each[0]));
      ServingException broken =
          failure(() -> other.generate(Plan.of(1), NOTHING).forEach(outputs -> {}));
      same(List.of(broken.code(), broken.getMessage()), List.of(each[1], each[2]));
    }
  }

  private static Client client(String server) {
    return new Client(SERVERS.get(server));
  }

  private static void same(Object got, Object expected) {
    if (!Objects.deepEquals(got, expected)) {
      throw new AssertionError("expected " + expected + ", got " + got);
    }
  }

  private static ServingException failure(Runnable call) {
    try {
      call.run();
    } catch (ServingException error) {
      return error;
    }
    throw new AssertionError("expected a ServingException");
  }

  private static void thrown(String text, Runnable call) {
    try {
      call.run();
    } catch (IllegalArgumentException | IllegalStateException error) {
      same(error.getMessage(), text);
      return;
    }
    throw new AssertionError("expected: " + text);
  }

  private static void predict() {
    Tensor x = Tensor.of(new float[] {1, 2, 3, 4}).reshape(2, 2);
    Map<String, Tensor> expected = Map.of("y", Tensor.of(new float[] {2, 4, 6, 8}).reshape(2, 2));
    Client client = client("open");
    same(client.predict("double", Map.of("x", x)), expected);
    same(client.predict(Target.of("double").version(3), Map.of("x", x)), expected);
    same(client.predict(Target.of("double").label("stable"), Map.of("x", x)), expected);
    same(client.predictAsync(Target.of("double"), Map.of("x", x)).join(), expected);
    same(client.status("double"), Map.of(3L, "AVAILABLE"));
    same(client.metadata(Target.of("double")).contains("\"serving_default\""), true);
  }

  private static void everyType() {
    Map<String, Tensor> tensors = new LinkedHashMap<>();
    tensors.put("f32", Tensor.of(FLOATS));
    tensors.put("f64", Tensor.of(DOUBLES));
    tensors.put("i8", Tensor.of(new byte[] {-128, -1, 127}));
    tensors.put("i16", Tensor.of(new short[] {-32768, -1, 32767}));
    tensors.put("i32", Tensor.of(new int[] {Integer.MIN_VALUE, -1, Integer.MAX_VALUE}));
    tensors.put("i64", Tensor.of(new long[] {Long.MIN_VALUE, -1, (1L << 53) + 1, Long.MAX_VALUE}));
    tensors.put("u8", Tensor.of(Type.UINT8, new byte[] {0, -1}));
    tensors.put("u16", Tensor.of(Type.UINT16, new byte[] {0, 1, -1, -1}));
    tensors.put("u32", Tensor.of(Type.UINT32, new byte[] {1, 2, 3, -1}));
    tensors.put("u64", Tensor.of(Type.UINT64, new byte[] {1, 2, 3, 4, 5, 6, 7, -1}));
    tensors.put("bool", Tensor.of(new boolean[] {true, false}));
    tensors.put("f16", Tensor.of(Type.HALF, new byte[] {0, 0x3c, 0, -128}));
    tensors.put("bf16", Tensor.of(Type.BFLOAT16, new byte[] {-128, 0x3f}));
    tensors.put("c64", Tensor.of(Type.COMPLEX64, Arrays.copyOf(new byte[] {1}, 16)));
    tensors.put("c128", Tensor.of(Type.COMPLEX128, Arrays.copyOf(new byte[] {1}, 32)));
    tensors.put("string", Tensor.of(new String[] {"", "Grüße 🌷"}));
    Client client = client("open");
    tensors.forEach(
        (signature, t) -> {
          Target target = Target.of("echo").signature(signature);
          same(client.predict(target, Map.of("t", t)), Map.of("t", t));
        });
    same(tensors.get("f32").floats(), FLOATS);
    same(tensors.get("f64").doubles(), DOUBLES);
    same(tensors.get("i64").longs()[2], (1L << 53) + 1);
    same(tensors.get("u32").ints(), new int[] {0xff030201});
    same(tensors.get("u16").shorts(), new short[] {256, -1});
    same(tensors.get("bool").booleans(), new boolean[] {true, false});
    same(tensors.get("string").strings(), new String[] {"", "Grüße 🌷"});
    Tensor none = Tensor.of(new float[0]);
    same(client.predict(Target.of("echo").signature("f32"), Map.of("t", none)).get("t"), none);
  }

  private static void aLargeArray() {
    float[] values = new float[1 << 20];
    for (int i = 0; i < values.length; i++) {
      values[i] = i / 3f;
    }
    Target target = Target.of("echo").signature("f32");
    same(client("open").predict(target, Map.of("t", Tensor.of(values))).get("t").floats(), values);
  }

  private static void signaturesAndOutputs() {
    Map<String, Tensor> inputs =
        Map.of("a", Tensor.of(new int[] {1, 2}), "b", Tensor.of(new int[] {3, 4}));
    Target add = Target.of("m").signature("add");
    same(client("open").predict(add, inputs).keySet(), Set.of("a", "sum"));
    Tensor sum = client("open").predict(add.outputs("sum"), inputs).get("sum");
    same(sum, Tensor.of(new int[] {4, 6}));
    Map<String, Tensor> x = Map.of("x", Tensor.of(new float[] {1, 2}).reshape(1, 2));
    Tensor total = client("open").predict(Target.of("m").signature("total"), x).get("total");
    same(total, Tensor.of(new float[] {3}).reshape());
  }

  private static void json() {
    String rows = client("open").json(Target.of("double"), "predict", "{\"instances\": [[1, 2]]}");
    same(rows, "{\"predictions\": [[2.0, 4.0]]}");
    String body = "{\"signature_name\": \"value\", \"examples\": [{\"age\": 2}]}";
    same(client("open").json(Target.of("m"), "regress", body), "{\"result\": [4.0]}");
  }

  private static void errorsOfTheServer() {
    ServingException unknown = failure(() -> client("open").predict("other", NOTHING));
    same(unknown.status(), 404);
    same(unknown.code(), "NOT_FOUND");
    same(unknown.getMessage(), "Servable not found for request: Latest(other)");
    Map<String, Tensor> x = Map.of("x", Tensor.of(new float[] {1}));
    ServingException shape = failure(() -> client("open").predict("double", x));
    same(List.of(shape.status(), shape.code()), List.of(400, "INVALID_ARGUMENT"));
    same(shape.getMessage(), "input 'x': shape [1], expected f32[batch, 2]");
    String quotes = "{\"instances\": [\"\\\"\\n\"]}";
    ServingException text = failure(() -> client("open").json(Target.of("double"), "predict", quotes));
    same(text.getMessage(), "instances[0]: expected f32, got '\"\\n'");
    String age = "{\"examples\": [{\"age\": 1}], \"signature_name\": \"fails\"}";
    same(failure(() -> client("open").json(Target.of("m"), "regress", age)).status(), 500);
    same(failure(() -> client("open").status("other")).status(), 404);
  }

  private static void tokens() {
    ServingException missing = failure(() -> client("guarded").status("double"));
    same(List.of(missing.status(), missing.code()), List.of(401, "UNAUTHENTICATED"));
    same(client("guarded").withToken("secret").status("double"), Map.of(3L, "AVAILABLE"));
  }

  private static void deadlines() {
    Map<String, Tensor> x = Map.of("x", Tensor.of(new float[] {1}));
    Client hurried = client("open").withTimeout(Duration.ofMillis(50));
    ServingException own = failure(() -> hurried.predict("slow", x));
    same(List.of(own.status(), own.code()), List.of(0, "DEADLINE_EXCEEDED"));
    same(own.getMessage(), "no answer within 50 ms");
    ServingException servers = failure(() -> client("impatient").predict("slow", x));
    same(servers.status() >= 400, true);
    same(servers.code(), "DEADLINE_EXCEEDED");
  }

  private static void cancelling() {
    Map<String, Tensor> x = Map.of("x", Tensor.of(new float[] {1}));
    Client client = client("open");
    CompletableFuture<Map<String, Tensor>> call = client.predictAsync(Target.of("slow"), x);
    call.cancel(true);
    same(call.isCancelled(), true);
    Thread.currentThread().interrupt();
    same(failure(() -> client.predict("slow", x)).code(), "CANCELLED");
    same(Thread.interrupted(), true);
    Throwable later = client.predictAsync(Target.of("other"), x).handle((found, error) -> error).join();
    same(((ServingException) later.getCause()).status(), 404);
  }

  private static void noServer() {
    ServingException error = failure(() -> client("closed").status("double"));
    same(List.of(error.status(), error.code()), List.of(0, "UNAVAILABLE"));
  }

  private static void closedConnections() {
    Client client = client("closing");
    for (int i = 0; i < 3; i++) {
      same(client.predict("any", NOTHING), NOTHING);
    }
    Target target = Target.of("any");
    List<CompletableFuture<?>> calls = new ArrayList<>(); // each has a connection of its own
    for (int i = 0; i < 8; i++) {
      calls.add(client.predictAsync(target, NOTHING));
    }
    calls.forEach(CompletableFuture::join);
    same(client.json(target, "predict", "{}"), ""); // and no connection that stayed open is good
    Session session = client.session(target);
    for (int i = 0; i < 4; i++) {
      same(session.predict(NOTHING), NOTHING);
    }
    same(client.status(session.id()), Map.of(4L, "AVAILABLE")); // repeated with their numbers
    session.close();
  }

  private static void lostAnswers() {
    Session session = client("lossy").session(Target.of("counter").signature("add"));
    for (int i = 1; i <= 6; i++) {
      same(total(session.predict(x(1))), i);
    }
    session.close();
  }

  private static void otherServers() {
    Client client = client("foreign");
    Map<String, Tensor> expected = new LinkedHashMap<>();
    expected.put("content", Tensor.of(new int[] {-1, 2}));
    expected.put("filled", Tensor.of(new float[] {1.5f, 2.5f, 2.5f}));
    byte[] pairs = {0, 0, -128, 63, 0, 0, 0, 64, 0, 0, -128, 63, 0, 0, 0, 64};
    expected.put("pairs", Tensor.of(Type.COMPLEX64, pairs));
    expected.put("unpacked", Tensor.of(new int[] {5, -6}));
    expected.put("words", Tensor.of(new String[] {"a", "a"}));
    expected.put("zeros", Tensor.of(new long[2]).reshape(1, 2));
    same(client.predict("forms", NOTHING), expected);
    for (String model : List.of("short", "int4")) {
      ServingException error = failure(() -> client.predict(model, NOTHING));
      same(List.of(error.status(), error.code()), List.of(200, "INTERNAL"));
    }
    same(failure(() -> client.status("forms")).code(), "INTERNAL");
    same(failure(() -> client.status("empty")).code(), "INTERNAL");
    ServingException html = failure(() -> client.status("missing"));
    same(List.of(html.status(), html.getMessage()), List.of(502, "<html>Bad gateway</html>"));
    same(failure(() -> client.status("escapes")).getMessage(), "ü🌷\n\t/\"\\");
  }

  private static void tensors() {
    Tensor three = Tensor.of(new float[3]);
    thrown("shape [2, 2] does not have 3 elements of FLOAT", () -> three.reshape(2, 2));
    thrown("negative size in shape [-1, -3]", () -> three.reshape(-1, -3));
    thrown("expected [DOUBLE], got FLOAT", three::doubles);
    thrown("shape [1] does not have 1 elements of INT32", () -> Tensor.of(Type.INT32, new byte[5]));
    same(three.reshape(1, 3).toString(), "FLOAT[1, 3]");
  }
}
