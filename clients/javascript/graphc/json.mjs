// JSON with NaN, Infinity, bigints, typed arrays and tensors.

import { asTensor, ENCODED, nest, Tensor } from "./tensor.mjs";

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
