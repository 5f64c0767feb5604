// Arrays of one dtype.

// dtype -> its number in types.proto, the typed array, and how many of its elements a value takes
export const DTYPES = {
  float32: [1, Float32Array], float64: [2, Float64Array], int32: [3, Int32Array],
  uint8: [4, Uint8Array], int16: [5, Int16Array], int8: [6, Int8Array], string: [7, Array],
  complex64: [8, Float32Array, 2], int64: [9, BigInt64Array], bool: [10, Uint8Array],
  bfloat16: [14, Uint16Array], uint16: [17, Uint16Array], complex128: [18, Float64Array, 2],
  float16: [19, Uint16Array], uint32: [22, Uint32Array], uint64: [23, BigUint64Array],
};
export const BY_NUMBER = new Map(Object.entries(DTYPES).map(([name, [number]]) => [number, name]));
export const ENCODED = ["float16", "bfloat16", "complex64", "complex128"]; // data are bits, or pairs
const BY_KIND = new Map(
  Object.entries(DTYPES)
    .filter(([name]) => ![...ENCODED, "bool"].includes(name))
    .map(([name, [, kind]]) => [kind.name, name]),
);

/** "Float32Array", and "Uint8Array" also of a Buffer. */
const kindOf = (data) => (Array.isArray(data) ? "Array" : data?.[Symbol.toStringTag])?.replace("Clamped", "");

/**
 * An array of one dtype.
 *
 * `data` is flat, in row-major order: a typed array, or an array of strings (or of Uint8Array, for
 * strings that are not UTF-8). `shape` is by default that of a vector. `dtype` follows from the data, except
 * "bool" (Uint8Array of 0 and 1), "complex64" and "complex128" (pairs in a Float32Array or
 * Float64Array), "float16" and "bfloat16" (the bits, in a Uint16Array). int64 is a BigInt64Array.
 */
export class Tensor {
  constructor(data, shape, dtype = BY_KIND.get(kindOf(data))) {
    if (!Object.hasOwn(DTYPES, dtype ?? "")) {
      throw new TypeError(`Tensor: expected a typed array or an array of strings, got ${dtype ?? typeof data}`);
    }
    const [, kind, width = 1] = DTYPES[dtype];
    if (kindOf(data) !== kind.name) {
      throw new TypeError(`Tensor: ${dtype} needs a ${kind.name}, got ${kindOf(data) ?? typeof data}`);
    }
    if (dtype === "string" && !data.every((each) => typeof each === "string" || kindOf(each) === "Uint8Array")) {
      throw new TypeError("Tensor: an array must have strings only; numbers are a typed array, or Tensor.from(numbers)");
    }
    this.data = data;
    this.shape = shape ?? [data.length / width];
    this.dtype = dtype;
    const size = width * this.shape.reduce((product, each) => product * each, 1);
    if (size !== data.length || !this.shape.every((each) => Number.isInteger(each) && each >= 0)) {
      throw new RangeError(`Tensor: shape [${this.shape}] needs ${size} elements of data, got ${data.length}`);
    }
  }

  /** The tensor of nested arrays of numbers (bigints for int64), booleans or strings. */
  static from(nested, dtype = "float32") {
    if (!Object.hasOwn(DTYPES, dtype) || ENCODED.includes(dtype)) {
      throw new TypeError(`Tensor.from: no dtype ${dtype} here`);
    }
    const [shape, flat] = [[], []];
    for (let each = nested; Array.isArray(each); each = each[0]) shape.push(each.length);
    const collect = (each, axis) => {
      if ((Array.isArray(each) ? each.length : undefined) !== shape[axis]) {
        throw new RangeError(`Tensor.from: the arrays do not all have the shape [${shape}] of the first`);
      }
      if (axis === shape.length) flat.push(each);
      else for (const inner of each) collect(inner, axis + 1);
    };
    collect(nested, 0);
    return new Tensor(DTYPES[dtype][1].from(flat), shape, dtype);
  }

  /** The values as nested arrays; the bare value for shape []. Complex values are pairs. */
  toArray() {
    return nest(this, this.dtype === "bool" ? (each) => each !== 0 : (each) => each, (list) => list);
  }
}

/** Nested lists of a tensor's values. */
export function nest({ data, shape, dtype }, leaf, list) {
  const sizes = DTYPES[dtype][2] ? [...shape, 2] : shape;
  const part = (axis, start, count) => {
    if (axis === sizes.length) return leaf(data[start]);
    const inner = count / sizes[axis];
    return list(Array.from({ length: sizes[axis] }, (_, i) => part(axis + 1, start + i * inner, inner)));
  };
  return part(0, 0, data.length);
}

/** A typed array as a vector; a tensor as it is. */
export const asTensor = (given) => (given instanceof Tensor ? given : new Tensor(given));
