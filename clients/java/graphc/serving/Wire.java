package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;

import graphc.serving.Client.Target;
import graphc.serving.Session.Plan;
import graphc.serving.Tensor.Type;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The binary form: protocol buffers, as in serving.proto. */
final class Wire {
  private static final int VARINT = 0;
  private static final int BYTES = 2;
  private static final List<Integer> PLAIN = List.of(5, 6, 9, 12); // fields that are memory

  private Wire() {}

  // -- writing ------------------------------------------------------------------------------------

  /** A PredictRequest. */
  static byte[] writeRequest(Target target, Map<String, Tensor> inputs) {
    Message spec = new Message().field(3, target.signature());
    Message request = new Message().field(1, spec.bytes());
    inputs.forEach((name, tensor) -> request.entry(2, name, tensorProto(tensor)));
    target.outputs().forEach(name -> request.field(3, name));
    return request.bytes();
  }

  /** A SessionRequest. */
  static byte[] writeSessionRequest(Plan plan, Map<String, Tensor> inputs) {
    Message spec = new Message().field(3, plan.signature());
    Message request = new Message().field(1, spec.bytes());
    inputs.forEach((name, tensor) -> request.entry(2, name, tensorProto(tensor)));
    plan.outputs().forEach(name -> request.field(3, name));
    request.number(4, plan.steps());
    plan.feedback().forEach((input, output) -> request.entry(5, input, output.getBytes(UTF_8)));
    plan.stop().forEach((output, values) -> request.entry(6, output, tensorProto(values)));
    return request.bytes();
  }

  /** A SessionRequest with its number, by which the server knows a request that is repeated. */
  static byte[] numbered(byte[] request, long number) {
    byte[] last = new Message().number(7, number).bytes();
    byte[] whole = Arrays.copyOf(request, request.length + last.length);
    System.arraycopy(last, 0, whole, request.length, last.length);
    return whole;
  }

  private static byte[] tensorProto(Tensor tensor) {
    Message shape = new Message();
    for (long size : tensor.shape()) {
      shape.field(2, new Message().number(1, size).bytes());
    }
    Message proto = new Message().number(1, tensor.type().number).field(2, shape.bytes());
    if (tensor.type() == Type.STRING) {
      tensor.byteStrings().forEach(each -> proto.field(8, each));
      return proto.bytes();
    }
    return proto.field(4, bytesOf(tensor.memory())).bytes();
  }

  /** The bytes of a message, field by field. */
  private static final class Message {
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();

    Message field(int number, byte[] value) {
      varint((long) number << 3 | BYTES);
      varint(value.length);
      out.writeBytes(value);
      return this;
    }

    Message field(int number, String value) {
      return field(number, value.getBytes(UTF_8));
    }

    /** An entry of a map. */
    Message entry(int number, String name, byte[] value) {
      return field(number, new Message().field(1, name).field(2, value).bytes());
    }

    Message number(int number, long value) {
      varint((long) number << 3 | VARINT);
      varint(value);
      return this;
    }

    byte[] bytes() {
      return out.toByteArray();
    }

    private void varint(long value) {
      for (; (value & ~127L) != 0; value >>>= 7) {
        out.write((int) (value & 127 | 128));
      }
      out.write((int) value);
    }
  }

  // -- reading ------------------------------------------------------------------------------------

  /** The outputs of a PredictResponse. */
  static Map<String, Tensor> readResponse(byte[] bytes) {
    Map<String, Tensor> outputs = new LinkedHashMap<>();
    for (Field output : fields(ByteBuffer.wrap(bytes))) {
      if (output.number != 1) {
        continue;
      }
      String name = "";
      Tensor tensor = null;
      for (Field part : fields(output.value)) {
        if (part.number == 1) {
          name = UTF_8.decode(part.value).toString();
        } else if (part.number == 2) {
          tensor = readTensor(part.value);
        }
      }
      outputs.put(name, tensor);
    }
    return outputs;
  }

  /** A field of a message; the value of a number is its varint. */
  private record Field(int number, ByteBuffer value) {}

  private static List<Field> fields(ByteBuffer message) {
    List<Field> found = new ArrayList<>();
    while (message.hasRemaining()) {
      long tag = varint(message);
      int start = message.position();
      int size =
          switch ((int) (tag & 7)) {
            case VARINT -> {
              varint(message);
              int end = message.position();
              message.position(start);
              yield end - start;
            }
            case 1 -> 8;
            case BYTES -> Math.toIntExact(varint(message));
            case 5 -> 4;
            default -> throw new IllegalArgumentException("it has a wire type " + (tag & 7));
          };
      if (size < 0 || size > message.remaining()) {
        throw new IllegalArgumentException("it ends early");
      }
      found.add(new Field((int) (tag >>> 3), message.slice(message.position(), size)));
      message.position(message.position() + size);
    }
    return found;
  }

  private static long varint(ByteBuffer bytes) {
    long value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (!bytes.hasRemaining()) {
        throw new IllegalArgumentException("it ends early");
      }
      byte next = bytes.get();
      value |= (long) (next & 127) << shift;
      if (next >= 0) {
        return value;
      }
    }
    throw new IllegalArgumentException("it has a number of more than 64 bits");
  }

  /** A TensorProto: its values are in tensor_content (4) or in the field of its type (5 to 17). */
  private static Tensor readTensor(ByteBuffer message) {
    int number = 0;
    long[] shape = {};
    ByteBuffer content = ByteBuffer.allocate(0);
    List<Field> values = new ArrayList<>();
    for (Field field : fields(message)) {
      switch (field.number) {
        case 1 -> number = (int) varint(field.value);
        case 2 -> shape = readShape(field.value);
        case 3 -> {} // the version of the message
        case 4 -> content = field.value;
        default -> values.add(field);
      }
    }
    Type type = typeOf(number);
    int count = Math.toIntExact(Tensor.elements(shape));
    if (type == Type.STRING) {
      return new Tensor(type, shape, new byte[0], readStrings(values, count));
    }
    if (content.hasRemaining()) {
      return new Tensor(type, shape, bytesOf(content), List.of());
    }
    ByteBuffer memory = ByteBuffer.allocate(Math.multiplyExact(count, type.size));
    values.forEach(field -> readValues(field, type.size, memory));
    repeatLast(memory, type.size);
    return new Tensor(type, shape, memory.array(), List.of());
  }

  private static Type typeOf(int number) {
    return Arrays.stream(Type.values())
        .filter(type -> type.number == number)
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("DataType " + number + " is not supported"));
  }

  private static long[] readShape(ByteBuffer message) {
    return fields(message).stream()
        .filter(axis -> axis.number == 2)
        .mapToLong(
            axis ->
                fields(axis.value).stream()
                    .filter(part -> part.number == 1)
                    .mapToLong(part -> varint(part.value))
                    .findFirst()
                    .orElse(0))
        .toArray();
  }

  private static List<byte[]> readStrings(List<Field> values, int count) {
    List<byte[]> strings = new ArrayList<>();
    for (Field field : values) {
      strings.add(bytesOf(field.value));
    }
    while (strings.size() < count) {
      strings.add(strings.isEmpty() ? new byte[0] : strings.get(strings.size() - 1));
    }
    return strings;
  }

  private static byte[] bytesOf(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(bytes);
    return bytes;
  }

  private static void readValues(Field field, int size, ByteBuffer into) {
    if (PLAIN.contains(field.number)) {
      into.put(field.value);
      return;
    }
    while (field.value.hasRemaining()) {
      long value = varint(field.value);
      for (int i = 0; i < size; i++) {
        into.put((byte) (value >>> 8 * i));
      }
    }
  }

  /** Fills the rest with the last value, as the protocol says. */
  private static void repeatLast(ByteBuffer memory, int size) {
    boolean any = memory.position() > 0;
    while (any && memory.hasRemaining()) {
      memory.put(memory.get(memory.position() - size));
    }
  }
}
