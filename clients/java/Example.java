import graphc.serving.Client;
import graphc.serving.ServingException;
import graphc.serving.Tensor;
import java.time.Duration;
import java.util.Map;

public final class Example {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "http://localhost:8501";
    Client client = new Client(address).withTimeout(Duration.ofSeconds(10));
    Tensor x = Tensor.of(new float[] {1, 0, 0, 0, 1, 0}).reshape(2, 3);

    Tensor scores = client.predict("flowers", Map.of("x", x)).get("scores");
    for (float score : scores.floats()) { // scores.shape() is [2, 2]
      System.out.print(score + " ");
    }
    System.out.println();

    try {
      client.predict("flowers", Map.of("x", Tensor.of(new float[4]).reshape(1, 4)));
    } catch (ServingException error) {
      System.out.println(error.status() + " " + error.code() + ": " + error.getMessage());
    }
  }
}
