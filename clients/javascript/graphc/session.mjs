// Sessions: variables of a client on the server, for signatures that update variables.

import { ServingError } from "./errors.mjs";
import { readAll } from "./http.mjs";
import { asTensor } from "./tensor.mjs";
import { numbered, readResponse, writeSessionRequest } from "./wire.mjs";

const PROTOBUF = "application/x-protobuf";
const tensorsOf = (given) => Object.entries(given).map(([name, value]) => [name, asTensor(value)]);

/**
 * A session of a model, which `client.session` opens. The server keeps variables for it, which start
 * with the saved values. `id` is its name there, `model` and `version` say of what it is.
 */
export class Session {
  #http;
  #path;
  #number = 0; // of the last request
  #failed; // the last request of predict, if it failed
  #turn = Promise.resolve(); // the server takes the numbers in order

  constructor(http, path, model, { session_id: id, version }) {
    this.#http = http;
    this.#path = `${path}/sessions/${id}`;
    this.id = id;
    this.model = model;
    this.version = version;
  }

  /**
   * The outputs of one run, which assigns variables of the session: name -> Tensor. A call that failed
   * may be repeated: if the server has run it, the outputs are those of that run.
   * @param {Object<string, Tensor>} inputs a typed array is taken as a vector.
   * @param {{signature?: string, outputs?: string[], signal?: AbortSignal, timeout?: number}} options
   */
  async predict(inputs, options = {}) {
    const { signature = "", outputs = [] } = options;
    const body = writeSessionRequest(tensorsOf(inputs), signature, outputs);
    const before = this.#turn;
    let end;
    this.#turn = new Promise((resolve) => (end = resolve));
    await before;
    try {
      if (this.#failed === undefined || !equal(body, this.#failed)) this.#number++;
      this.#failed = body;
      const request = numbered(body, this.#number);
      const found = await this.#http.call("POST", `${this.#path}:predict`, options, readResponse, request, PROTOBUF);
      this.#failed = undefined;
      return found;
    } catch (error) {
      if (error.code === "ABORTED") this.#failed = undefined; // the number was used
      throw error;
    } finally {
      end();
    }
  }

  /**
   * The outputs of several runs, as the server computes them:
   *
   *     for await (const { next } of session.generate({ tokens }, { steps: 20, feedback: { tokens: "next" } })) ...
   *
   * If the loop ends early, the server completes the run in progress, and begins no other. If the
   * request arrives twice, because a browser repeats it, the code of the error is "ABORTED".
   * @param {Object<string, Tensor>} inputs of the first run; those of `feedback` change.
   * @param {object} options
   * @param {number} options.steps how many runs there are at most.
   * @param {Object<string, string>} [options.feedback] input -> the output of the run before.
   * @param {Object<string, Tensor>} [options.stop] output -> values: a run is the last one if all
   *   elements of the output are among them.
   * @param {string} [options.signature] by default that of the session.
   * @param {string[]} [options.outputs] only these; by default all.
   * @param {AbortSignal} [options.signal]
   * @param {number} [options.timeout] milliseconds for all runs; by default there is no limit.
   */
  async *generate(inputs, { steps, feedback = {}, stop = {}, signature = "", outputs = [], ...options }) {
    const plan = { steps, feedback: Object.entries(feedback), stop: tensorsOf(stop) };
    const body = writeSessionRequest(tensorsOf(inputs), signature, outputs, plan);
    const request = numbered(body, ++this.#number);
    this.#failed = undefined;
    for await (const [kind, data] of this.#http.events(`${this.#path}:generate`, options, request, PROTOBUF)) {
      if (kind === "end") return;
      if (kind === "error") {
        const { error, code } = JSON.parse(data);
        throw new ServingError(200, error, { code });
      }
      yield readAll((text) => readResponse(bytesOf(text)), data);
    }
    throw new ServingError(0, "the stream ended early", { code: "UNAVAILABLE" });
  }

  /** Ends the session, if it has not ended. */
  async close(options = {}) {
    try {
      await this.#http.call("DELETE", this.#path, options, () => undefined);
    } catch (error) {
      if (error.code !== "NOT_FOUND") throw error;
    }
  }
}

const equal = (a, b) => a.length === b.length && a.every((value, at) => value === b[at]);

/** The bytes of a text in base64. */
function bytesOf(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
