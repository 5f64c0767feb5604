package graphc.serving;

/** Why a call of a {@link Client} failed. The message is the server's. */
public final class ServingException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private final int status;
  private final String code;

  ServingException(int status, String code, String message, Throwable cause) {
    super(message, cause);
    this.status = status;
    this.code = code;
  }

  /** The HTTP status; 0 if there was no answer. */
  public int status() {
    return status;
  }

  /** gRPC's name of the error, such as NOT_FOUND; DEADLINE_EXCEEDED or UNAVAILABLE without an answer. */
  public String code() {
    return code;
  }

  /** The same, with the stack of this thread: the call is in it. */
  ServingException here() {
    return new ServingException(status, code, getMessage(), this);
  }
}
