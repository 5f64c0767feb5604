package graphc.serving;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;

/**
 * An array of one data type, in row-major order.
 *
 * <p>{@code Tensor.of(new float[] {1, 2, 3, 4}).reshape(2, 2)} has the shape [2, 2]. Types without a
 * type of Java are made of their bits: {@code Tensor.of(Type.UINT32, content)}.
 */
public final class Tensor {
  /** The data types, with their numbers in the protocol and the bytes of an element. */
  public enum Type {
    FLOAT(1, 4),
    DOUBLE(2, 8),
    INT32(3, 4),
    UINT8(4, 1),
    INT16(5, 2),
    INT8(6, 1),
    STRING(7, 0),
    /** Pairs of floats. */
    COMPLEX64(8, 8),
    INT64(9, 8),
    BOOL(10, 1),
    BFLOAT16(14, 2),
    UINT16(17, 2),
    /** Pairs of doubles. */
    COMPLEX128(18, 16),
    HALF(19, 2),
    UINT32(22, 4),
    UINT64(23, 8);

    final int number;
    final int size;

    Type(int number, int size) {
      this.number = number;
      this.size = size;
    }
  }

  private final Type type;
  private final long[] shape;
  private final byte[] content; // little-endian; empty for strings
  private final List<byte[]> strings;

  Tensor(Type type, long[] shape, byte[] content, List<byte[]> strings) {
    this.type = type;
    this.shape = shape.clone();
    this.content = content;
    this.strings = strings;
    long count = type == Type.STRING ? strings.size() : content.length / type.size;
    if (count != elements(shape) || (type != Type.STRING && content.length % type.size != 0)) {
      throw new IllegalArgumentException(
          "shape " + Arrays.toString(shape) + " does not have " + count + " elements of " + type);
    }
  }

  /** A vector of a type, from its memory in little-endian order. */
  public static Tensor of(Type type, byte[] content) {
    if (type == Type.STRING) {
      throw new IllegalArgumentException("strings have no memory: use Tensor.of(String[])");
    }
    return new Tensor(type, new long[] {content.length / type.size}, content.clone(), List.of());
  }

  public static Tensor of(float[] values) {
    ByteBuffer buffer = buffer(4 * values.length);
    buffer.asFloatBuffer().put(values);
    return vector(Type.FLOAT, values.length, buffer);
  }

  public static Tensor of(double[] values) {
    ByteBuffer buffer = buffer(8 * values.length);
    buffer.asDoubleBuffer().put(values);
    return vector(Type.DOUBLE, values.length, buffer);
  }

  /** INT64. */
  public static Tensor of(long[] values) {
    ByteBuffer buffer = buffer(8 * values.length);
    buffer.asLongBuffer().put(values);
    return vector(Type.INT64, values.length, buffer);
  }

  /** INT32. */
  public static Tensor of(int[] values) {
    ByteBuffer buffer = buffer(4 * values.length);
    buffer.asIntBuffer().put(values);
    return vector(Type.INT32, values.length, buffer);
  }

  /** INT16. */
  public static Tensor of(short[] values) {
    ByteBuffer buffer = buffer(2 * values.length);
    buffer.asShortBuffer().put(values);
    return vector(Type.INT16, values.length, buffer);
  }

  /** INT8. */
  public static Tensor of(byte[] values) {
    return of(Type.INT8, values);
  }

  public static Tensor of(boolean[] values) {
    byte[] content = new byte[values.length];
    for (int i = 0; i < values.length; i++) {
      content[i] = (byte) (values[i] ? 1 : 0);
    }
    return of(Type.BOOL, content);
  }

  public static Tensor of(String[] values) {
    List<byte[]> strings = Arrays.stream(values).map(each -> each.getBytes(UTF_8)).toList();
    return new Tensor(Type.STRING, new long[] {values.length}, new byte[0], strings);
  }

  /** The same elements with another shape; without sizes, a single value. */
  public Tensor reshape(long... shape) {
    return new Tensor(type, shape, content, strings);
  }

  public Type type() {
    return type;
  }

  public long[] shape() {
    return shape.clone();
  }

  /** The values of a FLOAT. */
  public float[] floats() {
    float[] values = new float[count(Type.FLOAT)];
    memory().asFloatBuffer().get(values);
    return values;
  }

  /** The values of a DOUBLE. */
  public double[] doubles() {
    double[] values = new double[count(Type.DOUBLE)];
    memory().asDoubleBuffer().get(values);
    return values;
  }

  /** The values of an INT64; the bits of a UINT64. */
  public long[] longs() {
    long[] values = new long[count(Type.INT64, Type.UINT64)];
    memory().asLongBuffer().get(values);
    return values;
  }

  /** The values of an INT32; the bits of a UINT32. */
  public int[] ints() {
    int[] values = new int[count(Type.INT32, Type.UINT32)];
    memory().asIntBuffer().get(values);
    return values;
  }

  /** The values of an INT16; the bits of a UINT16, HALF or BFLOAT16. */
  public short[] shorts() {
    short[] values = new short[count(Type.INT16, Type.UINT16, Type.HALF, Type.BFLOAT16)];
    memory().asShortBuffer().get(values);
    return values;
  }

  public boolean[] booleans() {
    boolean[] values = new boolean[count(Type.BOOL)];
    for (int i = 0; i < values.length; i++) {
      values[i] = content[i] != 0;
    }
    return values;
  }

  /** The texts of a STRING; bytes that are not UTF-8 are replaced. */
  public String[] strings() {
    count(Type.STRING);
    return strings.stream().map(each -> new String(each, UTF_8)).toArray(String[]::new);
  }

  /** The bytes of each element of a STRING. */
  public List<byte[]> byteStrings() {
    count(Type.STRING);
    return strings;
  }

  /** The memory of any type but STRING, read-only and in little-endian order. */
  public ByteBuffer memory() {
    return ByteBuffer.wrap(content).asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Tensor tensor
        && type == tensor.type
        && Arrays.equals(shape, tensor.shape)
        && Arrays.equals(content, tensor.content)
        && Arrays.deepEquals(strings.toArray(), tensor.strings.toArray());
  }

  @Override
  public int hashCode() {
    return 31 * Arrays.hashCode(shape) + Arrays.hashCode(content) + strings.size();
  }

  @Override
  public String toString() {
    return type + Arrays.toString(shape);
  }

  static long elements(long[] shape) {
    if (Arrays.stream(shape).anyMatch(size -> size < 0)) {
      throw new IllegalArgumentException("negative size in shape " + Arrays.toString(shape));
    }
    return Arrays.stream(shape).reduce(1, Math::multiplyExact);
  }

  private int count(Type... expected) {
    if (!Arrays.asList(expected).contains(type)) {
      throw new IllegalStateException("expected " + Arrays.toString(expected) + ", got " + type);
    }
    return (int) elements(shape);
  }

  private static ByteBuffer buffer(int size) {
    return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static Tensor vector(Type type, int length, ByteBuffer buffer) {
    return new Tensor(type, new long[] {length}, buffer.array(), List.of());
  }
}
