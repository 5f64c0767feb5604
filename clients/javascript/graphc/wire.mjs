// The binary form: protocol buffers, little-endian, as in serving.proto and sessions.proto.

import { BY_NUMBER, DTYPES, Tensor } from "./tensor.mjs";

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

/** An entry of a map: a name and the parts of its value. */
const entry = (number, name, ...value) => field(number, ...field(1, utf8(name)), ...field(2, ...value));

/** A PredictRequest. */
export function writeRequest(tensors, signature, outputs) {
  const parts = [...field(1, ...field(3, utf8(signature)))];
  for (const [name, tensor] of tensors) {
    for (const part of entry(2, name, ...writeTensor(tensor))) parts.push(part);
  }
  for (const name of outputs) parts.push(...field(3, utf8(name)));
  return joined(parts);
}

/** A SessionRequest. `plan` has the steps, feedback and stop of several runs. */
export function writeSessionRequest(tensors, signature, outputs, { steps = 0, feedback = [], stop = [] } = {}) {
  const parts = [...field(1, ...field(3, utf8(signature)))];
  for (const [number, given] of [[2, tensors], [6, stop]]) {
    for (const [name, tensor] of given) {
      for (const part of entry(number, name, ...writeTensor(tensor))) parts.push(part);
    }
  }
  for (const name of outputs) parts.push(...field(3, utf8(name)));
  parts.push(varint(4 << 3), varint(steps));
  for (const [input, output] of feedback) parts.push(...entry(5, input, utf8(output)));
  return joined(parts);
}

/** A SessionRequest with its number, by which the server knows a request that is repeated. */
export const numbered = (request, number) => joined([request, varint(7 << 3), varint(number)]);

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
export function readResponse(bytes) {
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
