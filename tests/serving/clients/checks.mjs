// What the JavaScript client does, checked in Node.js and in a browser. Each check takes the
// addresses of the servers of conftest.py and throws if something is wrong.

import { b64, Client, readJson, ServingError, Session, Tensor, writeJson } from "../../../clients/javascript/graphc-serving.mjs";

function same(got, expected, where = "value") {
  const [a, b] = [got, expected];
  if (Object.is(a, b)) return;
  const objects = typeof a === "object" && typeof b === "object" && a !== null && b !== null;
  if (!objects || a.constructor !== b.constructor || Object.keys(a).join() !== Object.keys(b).join()) {
    throw new Error(`${where}: expected ${writeJson(b)}, got ${writeJson(a)}`);
  }
  for (const key of Object.keys(b)) same(a[key], b[key], `${where}[${key}]`);
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    if (!(error instanceof ServingError)) throw error;
    return error;
  }
  throw new Error("expected a ServingError");
}

function thrown(kind, text, call) {
  try {
    call();
  } catch (error) {
    if (error instanceof kind && error.message.includes(text)) return;
    throw error;
  }
  throw new Error(`expected a ${kind.name}: ${text}`);
}

const FLOATS = [0, -0, 0.1 + 0.2, 1e21, 5e-324, 1.7976931348623157e308, NaN, Infinity, -Infinity];
const SMALLEST = -(2n ** 63n);
const LARGEST = 2n ** 63n - 1n;
const BY_DTYPE = {
  f32: new Tensor(Float32Array.from([...FLOATS, 1e-45, 16777217])),
  f64: new Tensor(Float64Array.from(FLOATS)),
  i8: new Tensor(Int8Array.of(-128, -1, 0, 127)),
  i16: new Tensor(Int16Array.of(-32768, -1, 0, 32767)),
  i32: new Tensor(Int32Array.of(-(2 ** 31), -1, 0, 2 ** 31 - 1)),
  i64: new Tensor(BigInt64Array.of(SMALLEST, -1n, 0n, 2n ** 53n + 1n, LARGEST)),
  u8: new Tensor(Uint8Array.of(0, 1, 255)),
  u16: new Tensor(Uint16Array.of(0, 1, 65535)),
  u32: new Tensor(Uint32Array.of(0, 1, 2 ** 32 - 1)),
  u64: new Tensor(BigUint64Array.of(0n, 2n ** 63n, 2n ** 64n - 1n)),
  bool: new Tensor(Uint8Array.of(1, 0, 1), [3], "bool"),
  f16: new Tensor(Uint16Array.of(0x3c00, 0x8000, 0x7c00), [3], "float16"),
  bf16: new Tensor(Uint16Array.of(0x3f80, 0x8000, 0x7f80), [3], "bfloat16"),
  c64: new Tensor(Float32Array.of(1, -2, 3, 4), [2], "complex64"),
  c128: new Tensor(Float64Array.of(1, -2, 3, 0.1), [2], "complex128"),
  string: new Tensor(["", "Grüße 🌷", "\0", "\ufeff"]),
};

export const checks = {
  async predict({ open }) {
    const client = new Client(open);
    const x = new Tensor(new Float32Array([1, 2, 3, 4]), [2, 2]);
    const expected = new Tensor(new Float32Array([2, 4, 6, 8]), [2, 2]);
    same(await client.predict("double", { x }), { y: expected });
    same(await client.predict("double", { x }, { version: 3n }), { y: expected });
    same(await client.predict("double", { x }, { label: "stable", timeout: Infinity }), { y: expected });
  },

  async every_dtype({ open }) {
    const client = new Client(open + "/");
    for (const [signature, t] of Object.entries(BY_DTYPE)) {
      same((await client.predict("echo", { t }, { signature })).t, t, signature);
      const empty = new Tensor(t.data.slice(0, 0), [0], t.dtype);
      same((await client.predict("echo", { t: empty }, { signature })).t, empty, `empty ${signature}`);
    }
    const bytes = new Tensor([Uint8Array.of(255, 0, 254)]);
    same((await client.predict("echo", { t: bytes }, { signature: "string" })).t, bytes);
  },

  async sessions({ counter }) {
    const client = new Client(counter);
    const session = await client.session("counter", { signature: "twice", seed: 2n ** 62n + 40n });
    same([session instanceof Session, session.model, session.version], [true, "counter", "1"]);
    const x = Int32Array.of(1, 2);
    const total = (value) => new Tensor(Int32Array.of(value), [1]);
    const first = await session.predict({ x });
    same([first.total, first.x], [total(46), new Tensor(x)]);
    same(await session.predict({ x }, { signature: "add", outputs: ["total"] }), { total: total(49) });
    const other = await client.session("counter", { version: 1 });
    same((await other.predict({ x }, { signature: "add" })).total, total(3)); // has a total of its own
    for (const each of [session, session, other]) await each.close();
    const ended = await failure(session.predict({ x }));
    same([ended.status, ended.code], [404, "NOT_FOUND"]);
    const unknown = await failure(client.session("other"));
    same([unknown.status, unknown.code], [404, "NOT_FOUND"]);
  },

  async streams_of_sessions({ counter }) {
    const session = await new Client(counter).session("counter", { signature: "add" });
    const x = Int32Array.of(1);
    const totals = async (options) => {
      const found = [];
      for await (const step of session.generate({ x }, options)) {
        same(Object.keys(step), ["total"]);
        found.push(step.total.data[0]);
      }
      return found;
    };
    const outputs = ["total"];
    same(await totals({ steps: 3, outputs }), [1, 2, 3]);
    same(await totals({ steps: 4, outputs, feedback: { x: "total" } }), [4, 8, 16, 32]);
    same(await totals({ steps: 9, outputs, stop: { total: Int32Array.of(34, 36) } }), [33, 34]);
    same(await totals({ steps: 2, outputs, signature: "twice" }), [36, 38]);
    for await (const { total } of session.generate({ x }, { steps: 100_000 })) {
      if (total.data[0] === 40) break; // the server begins no other run
    }
    const { total } = await session.predict({ x });
    if (total.data[0] > 50_000) throw new Error("the server went on");
    const wrong = await failure(totals({ steps: 0, outputs }));
    same([wrong.status, wrong.code], [400, "INVALID_ARGUMENT"]);
    await session.close();
    same((await failure(totals({ steps: 1, outputs }))).code, "NOT_FOUND");
  },

  async streams_that_fail({ counter, foreign }) {
    const session = await new Client(counter).session("counter", { signature: "add", seed: 1000 });
    const found = [];
    const all = async () => {
      for await (const { x } of session.generate(
        { x: Int32Array.of(1) }, { steps: 9, feedback: { x: "total" } },
      )) found.push(x.data[0]);
    };
    const failed = await failure(all()); // the server refuses 1001
    same([found, failed.code, failed.message], [[1], "INTERNAL", "the run failed"]);
    const slow = session.generate({ x: Int32Array.of(1) }, { steps: 2 ** 30, timeout: 100 });
    const late = await failure((async () => { for await (const _ of slow); })());
    same([late.status, late.code], [0, "DEADLINE_EXCEEDED"]);
    const stop = new AbortController();
    const aborted = session.generate({ x: Int32Array.of(1) }, { steps: 2 ** 30, signal: stop.signal });
    await aborted.next();
    stop.abort(new RangeError("enough"));
    try {
      for await (const _ of aborted);
      throw new Error("not aborted");
    } catch (error) {
      same(error.message, "enough");
    }
    await session.close();
    for (const [model, code, message] of [["cut", "INTERNAL", "gü"], ["early", "UNAVAILABLE", "the stream ended early"]]) {
      const foreigner = await new Client(foreign).session(model);
      const broken = await failure((async () => { for await (const _ of foreigner.generate({}, { steps: 1 })); })());
      same([broken.code, broken.message], [code, message]);
    }
  },

  async a_large_array({ open }) {
    const data = Float32Array.from({ length: 1 << 20 }, (_, i) => i / 3);
    const { t } = await new Client(open).predict("echo", { t: data }, { signature: "f32" });
    same(t.shape, [1 << 20]);
    if (data.some((value, i) => value !== t.data[i])) throw new Error("other numbers");
  },

  async signatures_and_outputs({ open }) {
    const client = new Client(open);
    const inputs = { a: Int32Array.of(1, 2), b: Int32Array.of(3, 4) };
    const sum = new Tensor(Int32Array.of(4, 6));
    same(await client.predict("m", inputs, { signature: "add", outputs: ["sum"] }), { sum });
    same(Object.keys(await client.predict("m", inputs)).sort(), ["a", "sum"]);
    const { total } = await client.predict("m", { x: Tensor.from([[1, 2]]) }, { signature: "total" });
    same(total, new Tensor(Float32Array.of(3), []));
    same(total.toArray(), 3);
  },

  async rows_and_columns({ open }) {
    const client = new Client(open);
    same(await client.predictRows("double", [[1, 2], [3, 4]]), [[2, 4], [6, 8]]);
    same(await client.predictRows("double", [{ x: [1, 2] }], { version: 3 }), [[2, 4]]);
    same(await client.predictColumns("double", { x: Tensor.from([[1, 2]], "int8") }), [[2, 4]]);
    same(await client.predictColumns("m", { a: [1], b: [2] }, { signature: "add" }), { sum: [3], a: [1] });
    const strings = ["\0NaN", "9007199254740993", 'a"\\'];
    same(await client.predictColumns("echo", { t: strings }, { signature: "string" }), strings);
    const bytes = b64(new TextEncoder().encode("Grüße"));
    same(await client.predictColumns("echo", { t: [bytes] }, { signature: "string" }), ["Grüße"]);
  },

  async json_is_exact({ open }) {
    const client = new Client(open);
    const echo = (t, signature) => client.predictColumns("echo", { t }, { signature });
    same(await echo(Float64Array.from(FLOATS), "f64"), FLOATS);
    same(await echo(Float32Array.from(FLOATS), "f32"), [...Float32Array.from(FLOATS)]);
    const large = 2n ** 53n + 1n; // which a number cannot hold
    same(await echo(BigInt64Array.of(SMALLEST, 7n, large, LARGEST), "i64"), [SMALLEST, 7, large, LARGEST]);
    same(await echo([large, Number.MAX_SAFE_INTEGER], "i64"), [large, Number.MAX_SAFE_INTEGER]);
    same(await echo(BY_DTYPE.u64, "u64"), [0, 2n ** 63n, 2n ** 64n - 1n]);
    same(await echo(BY_DTYPE.bool, "bool"), [true, false, true]);
    const both = { i: LARGEST, n: NaN, s: "\0n1", x: 0.1234567890123456, t: "NaN", u: undefined, v: null };
    delete both.u;
    same(readJson(writeJson({ ...both, u: undefined })), both);
  },

  async classify_and_regress({ open }) {
    const client = new Client(open);
    const examples = [{ x: [0.25, 0.75] }];
    same(await client.classify("m", examples, { signature: "scores" }), [[["0", 0.25], ["1", 0.75]]]);
    same(await client.regress("m", [{ age: 2 }, { age: 3.5 }], { signature: "value" }), [4, 7]);
  },

  async status_and_metadata({ open }) {
    const client = new Client(open);
    same(await client.status("double"), { 3: "AVAILABLE" });
    const { serving_default: found } = await client.metadata("double");
    same(found, {
      inputs: { x: { dtype: "float32", shape: [-1, 2] } },
      outputs: { y: { dtype: "float32", shape: [-1, 2] } },
    });
    same((await client.metadata("echo")).f64.inputs.t, { dtype: "float64", shape: [-1] });
  },

  async errors_of_the_server({ open }) {
    const client = new Client(open);
    const unknown = await failure(client.predict("other", { x: [""] }));
    same([unknown.status, unknown.code], [404, "NOT_FOUND"]);
    same(unknown.message, "Servable not found for request: Latest(other)");
    const shape = await failure(client.predict("double", { x: Float32Array.of(1) }));
    same([shape.status, shape.code], [400, "INVALID_ARGUMENT"]);
    same(shape.message, "input 'x': shape [1], expected f32[batch, 2]");
    const rows = await failure(client.predictRows("double", [[1, "a"]]));
    same([rows.status, rows.message], [400, "instances[0][1]: expected f32, got 'a'"]);
    const bug = await failure(client.regress("m", [{ age: 1 }], { signature: "fails" }));
    same([bug.status, bug.code], [500, "INTERNAL"]);
    same((await failure(client.status("double", { version: 7 }))).status, 404);
  },

  async tokens({ guarded }) {
    const missing = await failure(new Client(guarded).status("double"));
    same([missing.status, missing.code], [401, "UNAUTHENTICATED"]);
    same((await failure(new Client(guarded, { token: "other" }).status("double"))).status, 401);
    same(await new Client(guarded, { token: "secret" }).status("double"), { 3: "AVAILABLE" });
  },

  async deadlines({ open, impatient }) {
    const x = { x: Float32Array.of(1) };
    const own = await failure(new Client(open).predict("slow", x, { timeout: 50 }));
    same([own.status, own.code, own.message], [0, "DEADLINE_EXCEEDED", "no answer within 50 ms"]);
    same((await failure(new Client(open, { timeout: 50 }).predictColumns("slow", x))).status, 0);
    const servers = await failure(new Client(impatient).predict("slow", x));
    if (servers.status < 400) throw new Error(`status ${servers.status}`);
    same(servers.code, "DEADLINE_EXCEEDED");
  },

  async aborting({ open }) {
    const client = new Client(open);
    const stop = new AbortController();
    const call = client.predict("slow", { x: Float32Array.of(1) }, { signal: stop.signal });
    setTimeout(() => stop.abort(), 50);
    const name = await call.then(() => "", (error) => error.name);
    same(name, "AbortError");
    const reason = new Error("not any more");
    const before = client.status("double", { signal: AbortSignal.abort(reason) });
    same(await before.catch((error) => error), reason);
    same(await client.status("double"), { 3: "AVAILABLE" });
  },

  async no_server({ closed }) {
    const error = await failure(new Client(closed).status("double"));
    same([error.status, error.code], [0, "UNAVAILABLE"]);
  },

  async closed_connections({ closing }) {
    const client = new Client(closing);
    for (let i = 0; i < 3; i++) same(await client.predict("any", {}), {});
    for (let i = 0; i < 2; i++) same(await client.status("any"), { 0: "AVAILABLE" });
    const session = await client.session("any");
    for (let i = 0; i < 4; i++) same(await session.predict({}), {});
    same(await client.status(session.id), { 4: "AVAILABLE" }); // each was repeated with its number
    await session.close();
  },

  async lost_answers({ lossy }) {
    const session = await new Client(lossy).session("counter", { signature: "add" });
    const x = Int32Array.of(1);
    const total = (value) => new Tensor(Int32Array.of(value), [1]);
    const options = { outputs: ["total"] };
    for (let i = 1; i <= 6; i++) same(await session.predict({ x }, options), { total: total(i) });
    const both = await Promise.all([1, 2].map(() => session.predict({ x }, options)));
    same(both, [{ total: total(7) }, { total: total(8) }]);
    try {
      for await (const step of session.generate({ x }, { steps: 2 })) same(step.total.shape, [1]);
    } catch (error) {
      same([error.status, error.code], [409, "ABORTED"]); // it was repeated, and not run again
    }
    same(await session.predict({ x }, options), { total: total(11) });
    await session.close();
  },

  async other_servers({ foreign }) {
    const client = new Client(foreign);
    same(await client.predict("forms", {}), {
      content: new Tensor(Int32Array.of(-1, 2)),
      filled: new Tensor(Float32Array.of(1.5, 2.5, 2.5)),
      pairs: new Tensor(Float32Array.of(1, 2, 1, 2), [2], "complex64"),
      unpacked: new Tensor(Int32Array.of(5, -6)),
      words: new Tensor(["a", "a"]),
      zeros: new Tensor(new BigInt64Array(2), [1, 2]),
    });
    const asked = [
      () => client.predict("short", {}),
      () => client.predict("int4", {}),
      () => client.predictRows("forms", []),
      () => client.status("forms"),
      () => client.predictRows("empty", []),
      () => client.status("empty"),
      () => client.metadata("empty"),
    ];
    for (const ask of asked) {
      const error = await failure(ask());
      same([error.status, error.code], [200, "INTERNAL"]);
    }
    const html = await failure(client.predictRows("missing", []));
    same([html.status, html.message], [502, "<html>Bad gateway</html>"]);
    same((await failure(client.status("escapes"))).message, 'ü🌷\n\t/"\\');
  },

  async damaged_responses({ foreign }) {
    const answer = await fetch(`${foreign}/v1/models/forms:predict`, { method: "POST", body: "" });
    const bytes = new Uint8Array(await answer.arrayBuffer());
    let complete = 0;
    for (let size = 0; size < bytes.length; size++) {
      const client = new Client(foreign, { fetch: async () => new Response(bytes.slice(0, size)) });
      const found = await client.predict("forms", {}).catch((error) => error);
      if (!(found instanceof Error)) complete++; // it ends between two outputs
      else same([found.name, found.code], ["ServingError", "INTERNAL"]);
    }
    same(complete, 6);
  },

  async tensors() {
    const tensor = Tensor.from([[[1n, 2n, 3n]], [[4n, 5n, 6n]]], "int64");
    same(tensor.shape, [2, 1, 3]);
    same(tensor.toArray(), [[[1n, 2n, 3n]], [[4n, 5n, 6n]]]);
    same(Tensor.from([true, false], "bool").toArray(), [true, false]);
    same(Tensor.from("a", "string"), new Tensor(["a"], []));
    same(new Tensor(new Float32Array(), [2, 0]).toArray(), [[], []]);
    same(BY_DTYPE.c64.toArray(), [[1, -2], [3, 4]]);
    thrown(RangeError, "shape [2,2] needs 4 elements of data, got 3", () => new Tensor(new Int8Array(3), [2, 2]));
    thrown(RangeError, "shape [-1,-3]", () => new Tensor(new Int8Array(3), [-1, -3]));
    thrown(TypeError, "int64 needs a BigInt64Array, got Int32Array", () => new Tensor(new Int32Array(1), [1], "int64"));
    thrown(TypeError, "expected a typed array", () => new Tensor(7));
    thrown(TypeError, "strings only", () => new Tensor([1, 2]));
    thrown(TypeError, "strings only", () => Tensor.from([1], "string"));
    thrown(TypeError, "got toString", () => new Tensor(new Int8Array(1), [1], "toString"));
    thrown(RangeError, "the shape [3,2]", () => Tensor.from([[1, 2], [3], [4, 5, 6]]));
    thrown(RangeError, "the shape [2]", () => Tensor.from([1, [2]]));
    thrown(TypeError, "JSON has no complex64", () => writeJson(BY_DTYPE.c64));
  },
};

/** Runs every check: name -> "" or what is wrong. */
export async function run(addresses) {
  const found = {};
  for (const [name, check] of Object.entries(checks)) {
    found[name] = await check(addresses).then(() => "", (error) => String(error.stack ?? error));
  }
  return found;
}
