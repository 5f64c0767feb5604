/**
 * A client of `graphc serve` for browsers and Node.js (18 or newer), without dependencies. It needs
 * the modules in the folder graphc beside it.
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

import { ServingError } from "./graphc/errors.mjs";
import { Http } from "./graphc/http.mjs";
import { b64, readJson, writeJson } from "./graphc/json.mjs";
import { Session } from "./graphc/session.mjs";
import { asTensor, Tensor } from "./graphc/tensor.mjs";
import { readResponse, writeRequest } from "./graphc/wire.mjs";

export { b64, readJson, ServingError, Session, Tensor, writeJson };

/**
 * Options of a call.
 * @typedef {object} Options
 * @property {number|bigint|string} [version] of the model; by default the server chooses.
 * @property {string} [label] of a version.
 * @property {string} [signature] by default the model's default signature.
 * @property {AbortSignal} [signal] aborts the call, which then rejects with the signal's reason.
 * @property {number} [timeout] milliseconds, instead of the client's; Infinity for no limit.
 */

/**
 * Calls the models of a server.
 *
 * `address` is such as "http://localhost:8501". `token` is a bearer token. `timeout` is how many
 * milliseconds a call may take. Every method rejects with a ServingError if the call fails.
 */
export class Client {
  #http;

  constructor(address, { token, timeout = 30_000, fetch = globalThis.fetch } = {}) {
    this.#http = new Http(address, { token, timeout, fetch });
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
    return this.#http.call("POST", path, options, readResponse, body, "application/x-protobuf");
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
    return Object.fromEntries(await this.#http.call("GET", pathOf(model, options), options, read));
  }

  /** The signatures: {predict: {inputs: {x: {dtype: "float32", shape: [-1, 3]}}, outputs: ...}}. */
  async metadata(model, options = {}) {
    return this.#http.call("GET", `${pathOf(model, options)}/metadata`, options, readSignatures);
  }

  /**
   * A session: variables of its own on the server, for signatures that update variables.
   * @param {string} model
   * @param {Options & {seed?: number|bigint}} options signature: of calls that name none; seed: of
   *   the random numbers, by default the stream goes on that was saved.
   */
  async session(model, options = {}) {
    const body = writeJson({ signature_name: options.signature ?? "", seed: options.seed });
    const path = `${pathOf(model, options)}/sessions`;
    const found = await this.#http.call("POST", path, options, readJson, body, "application/json");
    return new Session(this.#http, pathOf(model, {}), model, found);
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
    return this.#http.call("POST", path, options, read, writeJson(named), "application/json");
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

function pathOf(model, { version, label }) {
  let path = `/v1/models/${encodeURIComponent(model)}`;
  if (version !== undefined) path += `/versions/${version}`;
  if (label !== undefined) path += `/labels/${encodeURIComponent(label)}`;
  return path;
}
