// What the C++ client does. The arguments are the servers of conftest.py: NAME=ADDRESS.

#include "graphc/serving.hpp"

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <sstream>

using namespace graphc::serving;
using namespace std::chrono_literals;

static std::map<std::string, std::string> servers;

static Client client(const std::string& server, Options options = {}) { return Client(servers.at(server), options); }

template <typename A, typename B> void same(const A& got, const B& expected, const std::string& where = "") {
  if (got == expected) return;
  std::ostringstream text;
  text << where;
  if constexpr (std::is_convertible_v<A, std::string> || std::is_arithmetic_v<A>) {
    text << " expected " << expected << ", got " << got;
  }
  throw std::runtime_error(text.str() + " is not what was expected");
}

static Error failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("expected an Error");
}

static void thrown(const std::string& text, const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    same(std::string(error.what()), text);
    return;
  }
  throw std::runtime_error("expected: " + text);
}

static Target at(Target target, const std::string& signature) {
  target.signature = signature;
  return target;
}

template <typename T> void echo(const std::string& signature, const std::vector<T>& values) {
  const Tensor t = Tensor::of<T>({static_cast<std::int64_t>(values.size())}, values);
  const Tensor found = client("open").predict(at("echo", signature), {{"t", t}}).at("t");
  same(found, t, signature);
  same(Tensor::of<T>(found.shape(), found.values<T>()), t, "values of " + signature);
}

static std::int32_t total(const Tensors& outputs) { return outputs.at("total").values<std::int32_t>().at(0); }

static Tensors x(std::int32_t value) { return {{"x", Tensor::of<std::int32_t>({1}, {value})}}; }

static void sessions() {
  Client ours = client("counter");
  Session session = ours.session(at("counter", "twice"), (std::int64_t{1} << 62) + 40);
  same(session.version(), std::int64_t{1});
  same(total(session.predict(x(3))), 46);
  const Tensors some = session.predict(x(3), "add", {"total"});
  same(total(some), 49);
  same(some.size(), std::size_t{1});
  {
    Session moved = ours.session(Target("counter"));
    Session other = std::move(moved);
    same(total(other.predict(x(3), "add")), 3);  // it has a total of its own
  }
  session.close();
  session.close();
  const Error ended = failure([&] { session.predict(x(1)); });
  same(ended.status(), 404);
  same(ended.code(), std::string("NOT_FOUND"));
  same(failure([&] { ours.session("other"); }).code(), std::string("NOT_FOUND"));
  same(failure([&] { ours.session(at("counter", "a\"\\")); }).code(), std::string("INVALID_ARGUMENT"));
}

static std::vector<std::int32_t> totals(Session& session, Plan plan, std::size_t most = 1000) {
  std::vector<std::int32_t> found;
  plan.outputs = {"total"};
  const std::size_t runs = session.generate(x(1), plan, [&](const Tensors& outputs) {
    same(outputs.size(), std::size_t{1});
    found.push_back(total(outputs));
    return found.size() < most;
  });
  same(runs, found.size());
  return found;
}

static Plan plan_of(std::int64_t steps) {
  Plan plan;
  plan.steps = steps;
  return plan;
}

static void streams_of_sessions() {
  using Numbers = std::vector<std::int32_t>;
  Session session = client("counter").session(at("counter", "add"));
  same(totals(session, plan_of(3)), Numbers{1, 2, 3});
  Plan fed = plan_of(4), stopped = plan_of(9), twice = plan_of(2);
  fed.feedback = {{"x", "total"}};
  same(totals(session, fed), Numbers{4, 8, 16, 32});
  stopped.stop.emplace("total", Tensor::of<std::int32_t>({2}, {34, 36}));
  same(totals(session, stopped), Numbers{33, 34});
  twice.signature = "twice";
  same(totals(session, twice), Numbers{36, 38});
  same(totals(session, plan_of(100'000), 2), Numbers{39, 40});  // the server begins no other run
  same(total(session.predict(x(1))) < 50'000, true);
  same(failure([&] { totals(session, plan_of(0)); }).status(), 400);
  session.close();
  same(failure([&] { totals(session, plan_of(1)); }).code(), std::string("NOT_FOUND"));
}

static void streams_that_fail() {
  Session session = client("counter").session(at("counter", "add"), 1000);
  Plan fed = plan_of(9), slow = plan_of(1 << 30);
  fed.feedback = {{"x", "total"}};
  const Error failed = failure([&] { totals(session, fed); });  // the server refuses 1001
  same(failed.code(), std::string("INTERNAL"));
  same(std::string(failed.what()), std::string("the run failed"));
  slow.timeout = 200ms;
  const Error late = failure([&] { session.generate(x(1), slow, [](const Tensors&) { return true; }); });
  same(late.status(), 0);
  same(late.code(), std::string("DEADLINE_EXCEEDED"));
  thrown("mine", [&] {
    session.generate(x(1), slow, [](const Tensors&) -> bool { throw std::invalid_argument("mine"); });
  });
  const std::vector<std::vector<std::string>> wrong{
      {"cut", "INTERNAL", "g\u00fc"}, {"early", "UNAVAILABLE", "the stream ended early"}};
  for (const auto& each : wrong) {
    Session other = client("foreign").session(each[0]);
    const Error broken = failure([&] { other.generate({}, plan_of(1), [](const Tensors&) { return true; }); });
    same(broken.code(), each[1]);
    same(std::string(broken.what()), each[2]);
  }
}

static void predict() {
  Client ours = client("open");
  const Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensors expected = {{"y", Tensor::of<float>({2, 2}, {2, 4, 6, 8})}};
  same(ours.predict("double", {{"x", x}}), expected);
  Target third = "double", stable = "double";
  third.version = 3;
  stable.label = "stable";
  same(ours.predict(third, {{"x", x}}), expected);
  same(ours.predict(stable, {{"x", x}}), expected);
  same(ours.status("double"), std::map<std::int64_t, std::string>{{3, "AVAILABLE"}});
  same(ours.metadata("double").find("\"serving_default\"") != std::string::npos, true);
  same(ours.json("double", "predict", R"({"instances": [[1, 2]]})"), R"({"predictions": [[2.0, 4.0]]})");
}

template <typename T> std::vector<T> limits() {
  using Limits = std::numeric_limits<T>;
  return {Limits::lowest(), Limits::min(), T(0), T(1), Limits::max()};
}

template <typename T> std::vector<T> floats() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> found = limits<T>();
  found.insert(found.end(), {T(-0.0), T(0.1), Limits::denorm_min(), Limits::infinity(), Limits::quiet_NaN()});
  return found;
}

static void every_type() {
  echo("f32", floats<float>());
  echo("f64", floats<double>());
  echo("i8", limits<std::int8_t>());
  echo("i16", limits<std::int16_t>());
  echo("i32", limits<std::int32_t>());
  echo("i64", std::vector<std::int64_t>{INT64_MIN, -1, (1LL << 53) + 1, INT64_MAX});
  echo("u8", limits<std::uint8_t>());
  echo("u16", limits<std::uint16_t>());
  echo("u32", limits<std::uint32_t>());
  echo("u64", limits<std::uint64_t>());
  echo("bool", std::vector<bool>{true, false, true});
  echo("c64", std::vector<std::complex<float>>{{1, -2}, {3, 4}});
  echo("c128", std::vector<std::complex<double>>{{1, -2}, {3, 0.1}});
  echo("f32", std::vector<float>{});
  std::vector<Tensor> others = {
      Tensor(Type::Half, {2}, std::string("\x00\x3c\x00\x80", 4)),
      Tensor(Type::Bfloat16, {1}, "\x80\x3f"),
      Tensor::of_strings({4}, {"", "Grüße", std::string("\0", 1), "\xff"}),
  };
  const char* signatures[] = {"f16", "bf16", "string"};
  for (std::size_t i = 0; i < others.size(); i++) {
    same(client("open").predict(at("echo", signatures[i]), {{"t", others[i]}}).at("t"), others[i], signatures[i]);
  }
}

static void a_large_array() {
  std::vector<float> values(1 << 20);
  for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i) / 3;
  echo("f32", values);
}

static void signatures_and_outputs() {
  const Tensors inputs = {{"a", Tensor::of<std::int32_t>({2}, {1, 2})}, {"b", Tensor::of<std::int32_t>({2}, {3, 4})}};
  Target add = at("m", "add");
  same(client("open").predict(add, inputs).size(), 2u);
  add.outputs = {"sum"};
  same(client("open").predict(add, inputs), Tensors{{"sum", Tensor::of<std::int32_t>({2}, {4, 6})}});
  const Tensor x = Tensor::of<float>({1, 2}, {1, 2});
  same(client("open").predict(at("m", "total"), {{"x", x}}).at("total"), Tensor::of<float>({}, {3}));
}

static void errors_of_the_server() {
  const Error unknown = failure([] { client("open").predict("other", {}); });
  same(unknown.status(), 404);
  same(unknown.code(), "NOT_FOUND");
  same(std::string(unknown.what()), "Servable not found for request: Latest(other)");
  const Error shape = failure([] { client("open").predict("double", {{"x", Tensor::of<float>({1}, {1})}}); });
  same(shape.status(), 400);
  same(shape.code(), "INVALID_ARGUMENT");
  same(std::string(shape.what()), "input 'x': shape [1], expected f32[batch, 2]");
  const Error text = failure([] { client("open").json("double", "predict", R"({"instances": ["\"\n\u0001ü"]})"); });
  same(std::string(text.what()), "instances[0]: expected f32, got '\"\\n\\x01ü'");
  const char* age = R"({"examples": [{"age": 1}], "signature_name": "fails"})";
  same(failure([&] { client("open").json("m", "regress", age); }).status(), 500);
  same(failure([] { client("open").status("other"); }).status(), 404);
}

static void tokens() {
  const Error missing = failure([] { client("guarded").status("double"); });
  same(missing.status(), 401);
  same(missing.code(), "UNAUTHENTICATED");
  Options options;
  options.token = "secret";
  same(client("guarded", options).status("double").size(), 1u);
}

static void deadlines() {
  Options hurried;
  hurried.timeout = 50ms;
  const Tensors x = {{"x", Tensor::of<float>({1}, {1})}};
  const Error own = failure([&] { client("open", hurried).predict("slow", x); });
  same(own.status(), 0);
  same(own.code(), "DEADLINE_EXCEEDED");
  same(std::string(own.what()), "no answer within 50 ms");
  const Error servers = failure([&] { client("impatient").predict("slow", x); });
  same(servers.status() >= 400, true);
  same(servers.code(), "DEADLINE_EXCEEDED");
}

static void no_server() {
  const Error error = failure([] { client("closed").status("double"); });
  same(error.status(), 0);
  same(error.code(), "UNAVAILABLE");
}

static void closed_connections() {
  Client ours = client("closing");
  using States = std::map<std::int64_t, std::string>;
  for (int i = 0; i < 3; i++) same(ours.predict("any", {}), Tensors{});
  same(ours.status("any"), States{{0, "AVAILABLE"}});
  Session session = ours.session("any");
  for (int i = 0; i < 2; i++) {
    same(session.predict({}), Tensors{});
    same(session.predict({}), Tensors{});
  }
  same(ours.status(session.id()), States{{4, "AVAILABLE"}});  // each was repeated with its number
}

static void lost_answers() {
  Session session = client("lossy").session(at("counter", "add"));
  for (std::int32_t i = 1; i <= 6; i++) same(total(session.predict(x(1))), i);
}

static void other_servers() {
  Client foreign = client("foreign");
  const Tensors expected = {
      {"content", Tensor::of<std::int32_t>({2}, {-1, 2})},
      {"filled", Tensor::of<float>({3}, {1.5, 2.5, 2.5})},
      {"pairs", Tensor::of<std::complex<float>>({2}, {{1, 2}, {1, 2}})},
      {"unpacked", Tensor::of<std::int32_t>({2}, {5, -6})},
      {"words", Tensor::of_strings({2}, {"a", "a"})},
      {"zeros", Tensor::of<std::int64_t>({1, 2}, {0, 0})},
  };
  same(foreign.predict("forms", {}), expected);
  for (const char* model : {"short", "int4"}) {
    const Error error = failure([&] { foreign.predict(model, {}); });
    same(error.status(), 200);
    same(error.code(), "INTERNAL");
  }
  same(failure([&] { foreign.status("forms"); }).code(), "INTERNAL");
  same(failure([&] { foreign.status("empty"); }).code(), "INTERNAL");
  const Error html = failure([&] { foreign.status("missing"); });
  same(html.status(), 502);
  same(std::string(html.what()), "<html>Bad gateway</html>");
  same(std::string(failure([&] { foreign.status("escapes"); }).what()), "ü🌷\n\t/\"\\");
}

static void texts() {
  std::size_t place = 0;
  const std::string text = R"({"error" : "\u00fc\ud83c\udf37\u20ac\/\t", "x": 1})";
  same(detail::string_after(text, "error", place).value(), "ü🌷€/\t");
  place = 0;
  same(detail::string_after(text, "x", place).has_value(), false);
  for (const char* broken : {R"({"error")", R"({"error": )", R"({"error": "\)", R"({"error": "\u12)"}) {
    place = 0;
    detail::string_after(broken, "error", place);
  }
}

static void damaged_responses() {
  std::string entry, response;
  detail::write_bytes(entry, 1, "t");
  detail::write_bytes(entry, 2, detail::write_tensor(Tensor::of<std::int64_t>({2, 1}, {1, 2})));
  detail::write_bytes(response, 1, entry);
  same(detail::read_response(response).size(), 1u);
  for (std::size_t size = 1; size < response.size(); size++) {
    thrown("it ends early", [&] { detail::read_response(std::string(response, 0, size)); });
  }
}

static void tensors() {
  thrown("the shape needs 4 elements, got 3", [] { Tensor::of<float>({2, 2}, {1, 2, 3}); });
  thrown("a size of the shape is negative", [] { Tensor::of<float>({-1}, {}); });
  thrown("the shape has too many elements", [] { Tensor::of<float>({INT64_MAX, 4}, {}); });
  thrown("the tensor has type 1, not 2", [] { Tensor::of<float>({1}, {1}).values<double>(); });
  thrown("the shape needs 1 elements, got 1", [] { Tensor(Type::Int32, {1}, "12345"); });
}

int main(int count, char** arguments) {
  for (int i = 1; i < count; i++) {
    const std::string each = arguments[i];
    const std::size_t sign = each.find('=');
    servers[each.substr(0, sign)] = each.substr(sign + 1);
  }
  const std::vector<std::pair<const char*, void (*)()>> checks = {
      {"predict", predict}, {"every type", every_type}, {"a large array", a_large_array},
      {"signatures and outputs", signatures_and_outputs}, {"errors of the server", errors_of_the_server},
      {"tokens", tokens}, {"deadlines", deadlines}, {"no server", no_server},
      {"closed connections", closed_connections}, {"lost answers", lost_answers}, {"sessions", sessions}, {"streams of sessions", streams_of_sessions},
      {"streams that fail", streams_that_fail}, {"other servers", other_servers}, {"texts", texts},
      {"damaged responses", damaged_responses}, {"tensors", tensors},
  };
  for (const auto& [name, check] : checks) {
    try {
      check();
      std::cout << "ok " << name << std::endl;
    } catch (const std::exception& error) {
      std::cout << "failed " << name << ": " << error.what() << std::endl;
    }
  }
}
