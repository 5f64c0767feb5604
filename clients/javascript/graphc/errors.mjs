// Why calls fail.

const CODES = {
  401: "UNAUTHENTICATED", 404: "NOT_FOUND", 405: "UNIMPLEMENTED", 408: "DEADLINE_EXCEEDED", 409: "ABORTED",
  410: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
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
