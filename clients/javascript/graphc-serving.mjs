/**
 * A client of `graphc serve` for browsers and Node.js (18 or newer), without dependencies.
 *
 *     const client = new Client("http://localhost:8501");
 *     const x = new Tensor(new Float32Array([1, 0, 0]), [1, 3]);
 *     const { scores } = await client.predict("flowers", { x });
 *     scores.data;   // Float32Array
 *     scores.shape;  // [1, 2]
 *
 * `predict` sends and receives typed arrays in binary form: every number arrives bit by bit.
 * The other methods use JSON, as TensorFlow Serving does.
 */

/**
 * Options of a call.
 * @typedef {object} Options
 * @property {number|bigint|string} [version] of the model; by default the server chooses.
 * @property {string} [label] of a version.
 * @property {string} [signature] by default the model's default signature.
 * @property {AbortSignal} [signal] aborts the call, which then rejects with the signal's reason.
 * @property {number} [timeout] milliseconds, instead of the client's; Infinity for no limit.
 */

const CODES = {
  401: "UNAUTHENTICATED", 404: "NOT_FOUND", 405: "UNIMPLEMENTED", 408: "DEADLINE_EXCEEDED",
  429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};

/**
 * Why a call failed.
 *
 * `status` is the HTTP status, 0 if there was no answer. `code` is gRPC's name of the error, such as
 * "NOT_FOUND"; without an answer it is "DEADLINE_EXCEEDED" or "UNAVAILABLE". `message` is the server's.
 */
export class ServingError extends Error {
  constructor(status, message, { code, cause } = {}) {
    super(message, { cause });
    this.name = "ServingError";
    this.status = status;
    this.code = code ?? CODES[status] ?? (status < 500 ? "INVALID_ARGUMENT" : "INTERNAL");
  }
}

// -- tensors ------------------------------------------------------------------------------------

// dtype -> its number in types.proto, the typed array, and how many of its elements a value takes
const DTYPES = {
  float32: [1, Float32Array], float64: [2, Float64Array], int32: [3, Int32Array],
  uint8: [4, Uint8Array], int16: [5, Int16Array], int8: [6, Int8Array], string: [7, Array],
  complex64: [8, Float32Array, 2], int64: [9, BigInt64Array], bool: [10, Uint8Array],
  bfloat16: [14, Uint16Array], uint16: [17, Uint16Array], complex128: [18, Float64Array, 2],
  float16: [19, Uint16Array], uint32: [22, Uint32Array], uint64: [23, BigUint64Array],
};
const BY_NUMBER = new Map(Object.entries(DTYPES).map(([name, [number]]) => [number, name]));
const ENCODED = ["float16", "bfloat16", "complex64", "complex128"]; // data are bits, or pairs
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
function nest({ data, shape, dtype }, leaf, list) {
  const sizes = DTYPES[dtype][2] ? [...shape, 2] : shape;
  const part = (axis, start, count) => {
    if (axis === sizes.length) return leaf(data[start]);
    const inner = count / sizes[axis];
    return list(Array.from({ length: sizes[axis] }, (_, i) => part(axis + 1, start + i * inner, inner)));
  };
  return part(0, 0, data.length);
}

// -- the client ---------------------------------------------------------------------------------

/**
 * Calls the models of a server.
 *
 * `address` is such as "http://localhost:8501". `token` is a bearer token. `timeout` is how many
 * milliseconds a call may take. Every method rejects with a ServingError if the call fails.
 */
export class Client {
  #address;
  #headers;
  #timeout;
  #fetch;

  constructor(address, { token, timeout = 30_000, fetch = globalThis.fetch } = {}) {
    this.#address = address.replace(/\/+$/, "");
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    this.#timeout = timeout;
    this.#fetch = (...given) => fetch(...given); // without a `this`, which browsers refuse
  }

  /**
   * The outputs of a signature, in binary form: name -> Tensor.
   * @param {string} model
   * @param {Object<string, Tensor>} inputs a typed array is taken as a vector.
   * @param {Options & {outputs?: string[]}} options outputs: only these; by default all.
   */
  async predict(model, inputs, options = {}) {
    const tensors = Object.entries(inputs).map(([name, given]) => [name, asTensor(given)]);
    const body = writeRequest(tensors, options.signature ?? "", options.outputs ?? []);
    const path = `${pathOf(model, options)}:predict`;
    return this.#call("POST", path, options, readResponse, body, "application/x-protobuf");
  }

  /** Rows to rows, in JSON: [[1, 0, 0]] or [{x: [1, 0, 0]}] -> a prediction for each. */
  async predictRows(model, instances, options = {}) {
    return this.#json("predict", model, { instances }, options, "predictions");
  }

  /** Columns to columns, in JSON: {x: [[1, 0, 0]]} -> the outputs, without a name if there is one. */
  async predictColumns(model, inputs, options = {}) {
    return this.#json("predict", model, { inputs }, options, "outputs");
  }

  /** For each example, such as {x: [1, 0, 0]}, its classes: [label, score]. */
  async classify(model, examples, options = {}) {
    return this.#json("classify", model, { examples }, options, "result");
  }

  /** For each example its number. */
  async regress(model, examples, options = {}) {
    return this.#json("regress", model, { examples }, options, "result");
  }

  /** The state of each version: {3: "AVAILABLE"}. */
  async status(model, options = {}) {
    const read = (data) => readJson(data).model_version_status.map((row) => [row.version, row.state]);
    return Object.fromEntries(await this.#call("GET", pathOf(model, options), options, read));
  }

  /** The signatures: {predict: {inputs: {x: {dtype: "float32", shape: [-1, 3]}}, outputs: ...}}. */
  async metadata(model, options = {}) {
    return this.#call("GET", `${pathOf(model, options)}/metadata`, options, readSignatures);
  }

  /** The value of `key` in the response. */
  async #json(verb, model, body, options, key) {
    const named = options.signature ? { signature_name: options.signature, ...body } : body;
    const read = (data) => {
      const found = readJson(data);
      if (found?.[key] === undefined) throw new TypeError(`it has no ${key}`);
      return found[key];
    };
    const path = `${pathOf(model, options)}:${verb}`;
    return this.#call("POST", path, options, read, writeJson(named), "application/json");
  }

  /** What `read` makes of the bytes of the response. */
  async #call(method, path, { signal, timeout = this.#timeout }, read, body, type) {
    signal?.throwIfAborted();
    const stop = new AbortController();
    const abort = () => stop.abort(signal.reason);
    signal?.addEventListener("abort", abort);
    const timer = timeout < 2 ** 31 ? setTimeout(() => stop.abort(), timeout) : undefined;
    try {
      const headers = type === undefined ? this.#headers : { ...this.#headers, "content-type": type };
      const response = await this.#fetch(this.#address + path, { method, headers, body, signal: stop.signal });
      const data = new Uint8Array(await response.arrayBuffer());
      if (!response.ok) throw new ServingError(response.status, errorText(data, response));
      return readAll(read, data);
    } catch (error) {
      if (error instanceof ServingError) throw error;
      if (signal?.aborted) throw signal.reason;
      if (stop.signal.aborted) {
        const code = "DEADLINE_EXCEEDED";
        throw new ServingError(0, `no answer within ${timeout} ms`, { code, cause: error });
      }
      const reason = error.cause?.message || error.message; // Node.js says "fetch failed"
      throw new ServingError(0, `${this.#address}: ${reason}`, { code: "UNAVAILABLE", cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }
}

function readSignatures(data) {
  const names = { DT_FLOAT: "float32", DT_DOUBLE: "float64", DT_HALF: "float16" };
  const types = (infos) => mapValues(infos ?? {}, ({ dtype, tensor_shape: shape }) => ({
    dtype: names[dtype] ?? dtype.slice(3).toLowerCase(),
    shape: (shape.dim ?? []).map(({ size }) => Number(size)),
  }));
  return mapValues(readJson(data).metadata.signature_def.signature_def, ({ inputs, outputs }) => ({
    inputs: types(inputs), outputs: types(outputs),
  }));
}

const mapValues = (object, change) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));

const asTensor = (given) => (given instanceof Tensor ? given : new Tensor(given));

function readAll(read, data) {
  try {
    return read(data);
  } catch (cause) {
    throw new ServingError(200, `the response cannot be read: ${cause.message}`, { code: "INTERNAL", cause });
  }
}

function pathOf(model, { version, label }) {
  let path = `/v1/models/${encodeURIComponent(model)}`;
  if (version !== undefined) path += `/versions/${version}`;
  if (label !== undefined) path += `/labels/${encodeURIComponent(label)}`;
  return path;
}

function errorText(data, response) {
  const text = new TextDecoder().decode(data);
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text.slice(0, 200) || response.statusText;
  }
}

// -- JSON ---------------------------------------------------------------------------------------

/** A string of bytes in a JSON request. */
export function b64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) {
    text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  }
  return { b64: btoa(text) };
}

/** JSON with NaN, Infinity, bigints, typed arrays and tensors. In tensors, -0 keeps its sign. */
export function writeJson(value) {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(writeJson).join(",")}]`;
  if (value instanceof Tensor || ArrayBuffer.isView(value)) return writeTensorJson(asTensor(value));
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const rows = Object.entries(value).filter(([, each]) => each !== undefined);
  return `{${rows.map(([name, each]) => `${JSON.stringify(name)}:${writeJson(each)}`).join(",")}}`;
}

function writeTensorJson(tensor) {
  if (ENCODED.includes(tensor.dtype)) {
    throw new TypeError(`JSON has no ${tensor.dtype}: use predict`);
  }
  const bool = tensor.dtype === "bool";
  const leaf = (each) => (Object.is(each, -0) ? "-0.0" : writeJson(bool ? each !== 0 : each));
  return nest(tensor, leaf, (list) => `[${list.join(",")}]`);
}

const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN|-?\d[\d.eE+-]*/g;

/**
 * The value of JSON (text, or bytes in UTF-8) that may contain NaN and Infinity.
 * Integers beyond 2^53 become bigints, because a number cannot hold them.
 */
export function readJson(data) {
  const text = typeof data === "string" ? data : new TextDecoder().decode(data);
  if (!/NaN|Infinity|\d{16}/.test(text)) return JSON.parse(text);
  // What JSON.parse does not read becomes a string that begins with NUL; so do strings with NUL.
  let found = false;
  const mark = (kind, token) => {
    found ||= kind !== "s";
    return `"\\u0000${kind}${token}"`;
  };
  const marked = text.replace(TOKENS, (token) => {
    if (token[0] === '"') return token.startsWith('"\\u0000') ? mark("s", token.slice(1, -1)) : token;
    if (/^(NaN|-?Infinity)$/.test(token)) return mark("n", token);
    return /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? mark("i", token) : token;
  });
  if (!found) return JSON.parse(text);
  const make = { s: String, n: Number, i: BigInt };
  return JSON.parse(marked, (_, value) => {
    return typeof value === "string" && value[0] === "\0" ? make[value[1]](value.slice(2)) : value;
  });
}

// -- the binary form: protocol buffers, little-endian -----------------------------------------------

/** The bytes of a field: its number and wire type, and then a length and the parts. */
function field(number, ...parts) {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  return [varint((number << 3) | 2), varint(size), ...parts];
}

function varint(value) {
  const bytes = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Uint8Array.of(...bytes, value);
}

const utf8 = (text) => (typeof text === "string" ? new TextEncoder().encode(text) : text);

/** The text, or a copy of the bytes if they are not UTF-8. */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return bytes.slice();
  }
}

/** A PredictRequest. */
function writeRequest(tensors, signature, outputs) {
  const parts = [...field(1, ...field(3, utf8(signature)))];
  for (const [name, tensor] of tensors) {
    const entry = [...field(1, utf8(name)), ...field(2, ...writeTensor(tensor))];
    for (const part of field(2, ...entry)) parts.push(part);
  }
  for (const name of outputs) parts.push(...field(3, utf8(name)));
  return joined(parts);
}

function writeTensor({ data, shape, dtype }) {
  const dims = shape.flatMap((size) => field(2, varint(8), varint(size)));
  const parts = [varint(8), varint(DTYPES[dtype][0]), ...field(2, ...dims)];
  if (dtype !== "string") {
    return [...parts, ...field(4, new Uint8Array(data.buffer, data.byteOffset, data.byteLength))];
  }
  for (const text of data) for (const part of field(8, utf8(text))) parts.push(part);
  return parts;
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Reads fields one after another. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /** A varint as its low and its high 32 bits, in `this.low` and `this.high`. */
  varint() {
    let [low, high, shift, byte] = [0, 0, 0, 0];
    do {
      byte = this.bytes[this.at++];
      if (byte === undefined || shift > 63) throw new RangeError("it ends early");
      if (shift < 32) low |= (byte & 127) << shift;
      if (shift > 24) high |= shift < 32 ? (byte & 127) >> (32 - shift) : (byte & 127) << (shift - 32);
      shift += 7;
    } while (byte >= 128);
    [this.low, this.high] = [low >>> 0, high >>> 0];
    return this.low + this.high * 2 ** 32;
  }

  take(size) {
    if (this.at + size > this.bytes.length) throw new RangeError("it ends early");
    return this.bytes.subarray(this.at, (this.at += size));
  }

  /** Calls `visit(number, wire type, bytes)` for each field; the bytes are those of its value. */
  each(visit) {
    while (this.at < this.bytes.length) {
      const tag = this.varint();
      const start = this.at;
      const wire = tag % 8;
      if (wire === 0) this.varint();
      const size = wire === 0 ? this.at - start : wire === 1 ? 8 : wire === 5 ? 4 : this.varint();
      if (wire === 0) this.at = start;
      visit(Math.floor(tag / 8), wire, this.take(size));
    }
  }
}

/** The outputs of a PredictResponse: name -> Tensor. */
function readResponse(bytes) {
  const outputs = {};
  new Reader(bytes).each((number, _, entry) => {
    if (number !== 1) return;
    let [name, tensor] = ["", undefined];
    new Reader(entry).each((part, _wire, value) => {
      if (part === 1) name = textOf(value);
      else if (part === 2) tensor = readTensor(value);
    });
    outputs[name] = tensor;
  });
  return outputs;
}

/** A TensorProto: its values are in `tensor_content` (4) or in the field of its dtype (5 to 17). */
function readTensor(bytes) {
  let [number, content] = [0, new Uint8Array()];
  const [shape, strings, values] = [[], [], []];
  new Reader(bytes).each((part, wire, value) => {
    if (part === 1) number = new Reader(value).varint();
    else if (part === 2) new Reader(value).each((axis, _, dim) => axis === 2 && shape.push(readSize(dim)));
    else if (part === 4) content = value;
    else if (part === 8) strings.push(textOf(value));
    else if (part >= 5) values.push([value, [5, 6, 9, 12].includes(part)]);
  });
  const dtype = BY_NUMBER.get(number);
  if (dtype === undefined) throw new TypeError(`DataType ${number} is not supported`);
  const count = shape.reduce((product, size) => product * size, 1);
  if (dtype === "string") {
    while (strings.length < count) strings.push(strings.at(-1) ?? "");
    return new Tensor(strings, shape);
  }
  const [, kind, width = 1] = DTYPES[dtype];
  const data = new kind(width * count);
  if (content.length && content.length !== data.byteLength) throw new RangeError("a tensor has the wrong size");
  fill(data, width, content.length ? [[content, true]] : values);
  return new Tensor(data, shape, dtype);
}

function readSize(bytes) {
  let size = 0;
  new Reader(bytes).each((number, _, value) => number === 1 && (size = new Reader(value).varint()));
  return size;
}

/** Fills an array with values: [bytes, whether they are its memory or varints]. The last is repeated. */
function fill(data, width, values) {
  const memory = new Uint8Array(data.buffer);
  const size = data.BYTES_PER_ELEMENT;
  let at = 0;
  for (const [bytes, plain] of values) {
    if (plain) {
      memory.set(bytes, at);
      at += bytes.length;
      continue;
    }
    const reader = new Reader(bytes);
    for (; reader.at < bytes.length; at += size) {
      reader.varint();
      for (let i = 0; i < size; i++) memory[at + i] = (i < 4 ? reader.low : reader.high) >>> (8 * (i % 4));
    }
  }
  const count = at / size;
  if (count && count < data.length) {
    const last = data.slice(count - width, count);
    for (let i = count; i < data.length; i += width) data.set(last, i);
  }
}
