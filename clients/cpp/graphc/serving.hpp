// A client of `graphc serve` for C++17 and libcurl: include this file, which needs those
// beside it, and link with -lcurl.
//
//   graphc::serving::Client client("http://localhost:8501");
//   auto x = graphc::serving::Tensor::of<float>({1, 3}, {1, 0, 0});
//   auto outputs = client.predict("flowers", {{"x", x}});
//   std::vector<float> scores = outputs.at("scores").values<float>();
//
// Arrays are sent and received in binary form: every number arrives bit by bit. Every call throws a
// graphc::serving::Error if it fails. A Client keeps its connection open; each thread needs its own.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "http.hpp"
#include "session.hpp"
#include "tensor.hpp"
#include "wire.hpp"

namespace graphc::serving {

/// Calls the models of the server at an address such as `http://localhost:8501`.
class Client {
 public:
  explicit Client(std::string address, Options options = {}) : http_(std::move(address), std::move(options)) {}

  /// The outputs of a signature.
  Tensors predict(const Target& target, const Tensors& inputs) {
    const std::string body = detail::write_request(target, inputs);
    return detail::read(http_.call(path(target) + ":predict", &body, detail::kProtobuf), detail::read_response);
  }

  /// The state of each version of a model: {3: "AVAILABLE"}.
  std::map<std::int64_t, std::string> status(const std::string& model) {
    return detail::read(http_.call(path(model)), [](const std::string& body) {
      std::map<std::int64_t, std::string> states;
      std::size_t at = body.find("\"model_version_status\"");
      if (at == std::string::npos) throw std::invalid_argument("it has no model_version_status");
      while (auto version = detail::string_after(body, "version", at)) {
        states[std::stoll(*version)] = detail::string_after(body, "state", at).value_or("UNKNOWN");
      }
      return states;
    });
  }

  /// The signatures of a model, as JSON.
  std::string metadata(const Target& target) { return http_.call(path(target) + "/metadata"); }

  /// The response to a body of JSON. The verb is "predict", "classify" or "regress".
  std::string json(const Target& target, const std::string& verb, const std::string& body) {
    return http_.call(path(target) + ":" + verb, &body, "application/json");
  }

  /// A session of a model: variables of its own on the server, for signatures that update variables. The
  /// target's signature is that of calls that name none. Without a seed, the random numbers are those that
  /// follow in the saved model.
  Session session(const Target& target, std::optional<std::int64_t> seed = {}) {
    std::string body = "{\"signature_name\": " + detail::json_text(target.signature);
    body += seed ? ", \"seed\": " + std::to_string(*seed) + "}" : "}";
    const std::string found = http_.call(path(target) + "/sessions", &body, "application/json");
    return {detail::Http(http_.address(), http_.options()), path(target.model), found};
  }

 private:
  std::string path(const Target& target) const {
    std::string found = "/v1/models/" + http_.quoted(target.model);
    if (target.version) found += "/versions/" + std::to_string(*target.version);
    if (!target.label.empty()) found += "/labels/" + http_.quoted(target.label);
    return found;
  }

  detail::Http http_;
};

}  // namespace graphc::serving
