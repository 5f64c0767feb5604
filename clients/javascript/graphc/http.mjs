// Requests by fetch: time limits, errors, and streams of server-sent events.

import { ServingError } from "./errors.mjs";

// Of Node.js: a connection ended. Browsers send a request again themselves.
const ENDED = ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"];
const TRIES = 5; // Node.js prefers connections that it has, and several of them may have ended

/** The server at an address. */
export class Http {
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
   * What `read` makes of the bytes of the response. If the connection ends before them, the request
   * is sent again, so the server may get it twice.
   */
  async call(method, path, { signal, timeout = this.#timeout }, read, body, type) {
    const limit = new Limit(signal, timeout);
    try {
      const response = await this.#send(method, path, limit, body, type);
      return readAll(read, new Uint8Array(await response.arrayBuffer()));
    } catch (error) {
      throw this.#reason(error, limit, "no answer");
    } finally {
      limit.end();
    }
  }

  /**
   * The server-sent events of the response, as they arrive: [kind, text]. If the loop over them ends
   * early, so does the request.
   */
  async *events(path, { signal, timeout = Infinity }, body, type) {
    const limit = new Limit(signal, timeout);
    try {
      const response = await this.#send("POST", path, limit, body, type);
      yield* eventsOf(response.body);
    } catch (error) {
      throw this.#reason(error, limit, "the stream did not end");
    } finally {
      limit.abort(); // also if the loop has ended
      limit.end();
    }
  }

  /** The response, unless it is an error. */
  async #send(method, path, limit, body, type) {
    const headers = type === undefined ? this.#headers : { ...this.#headers, "content-type": type };
    const { signal } = limit;
    const request = () => this.#fetch(this.#address + path, { method, headers, body, signal });
    const response = await tried(request, TRIES);
    if (response.ok) return response;
    const data = new Uint8Array(await response.arrayBuffer());
    throw new ServingError(response.status, errorText(data, response));
  }

  #reason(error, limit, what) {
    if (error instanceof ServingError) return error;
    if (limit.given?.aborted) return limit.given.reason;
    if (limit.signal.aborted) {
      const code = "DEADLINE_EXCEEDED";
      return new ServingError(0, `${what} within ${limit.timeout} ms`, { code, cause: error });
    }
    const reason = error.cause?.message || error.message; // Node.js says "fetch failed"
    return new ServingError(0, `${this.#address}: ${reason}`, { code: "UNAVAILABLE", cause: error });
  }
}

async function tried(request, tries) {
  try {
    return await request();
  } catch (error) {
    if (tries === 1 || !ENDED.includes(error?.cause?.code)) throw error;
  }
  return tried(request, tries - 1);
}

/** A signal that is aborted with another one, or after a time. */
class Limit {
  #stop = new AbortController();
  #timer;

  constructor(given, timeout) {
    given?.throwIfAborted();
    this.given = given;
    this.timeout = timeout;
    this.signal = this.#stop.signal;
    this.abort = () => this.#stop.abort(given?.reason);
    given?.addEventListener("abort", this.abort);
    if (timeout < 2 ** 31) this.#timer = setTimeout(() => this.#stop.abort(), timeout);
  }

  end() {
    clearTimeout(this.#timer);
    this.given?.removeEventListener("abort", this.abort);
  }
}

async function* eventsOf(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const fields = event.split("\n").map((line) => line.split(/: ?(.*)/s));
      const find = (name) => fields.find(([key]) => key === name)?.[1] ?? "";
      yield [find("event"), find("data")];
    }
  }
}

export function readAll(read, data) {
  try {
    return read(data);
  } catch (cause) {
    throw new ServingError(200, `the response cannot be read: ${cause.message}`, { code: "INTERNAL", cause });
  }
}

function errorText(data, response) {
  const text = new TextDecoder().decode(data);
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text.slice(0, 200) || response.statusText;
  }
}
