// Sessions: variables of a client on the server, for signatures that update variables.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http.hpp"
#include "tensor.hpp"
#include "wire.hpp"

namespace graphc::serving {

/// A session of a model, which `Client::session` opens. The server keeps variables for it, which
/// start with the saved values. It keeps a connection open; each thread needs its own.
///
///     graphc::serving::Session session = client.session("writer");
///     Plan plan;
///     plan.steps = 20;
///     plan.feedback = {{"tokens", "next"}};
///     session.generate({{"tokens", prompt}}, plan, [](const Tensors& outputs) {
///       std::cout << outputs.at("next").values<std::int32_t>()[0] << " " << std::flush;
///       return true;  // false ends it
///     });
class Session {
 public:
  Session(detail::Http http, const std::string& path, const std::string& response)
      : http_(std::move(http)),
        id_(detail::read(response, [](const std::string& text) { return member(text, "session_id"); })),
        version_(detail::read(response, [](const std::string& text) { return std::stoll(member(text, "version")); })),
        path_(path + "/sessions/" + id_) {}

  Session(Session&& other) noexcept
      : http_(std::move(other.http_)), id_(std::move(other.id_)), version_(other.version_),
        path_(other.path_), number_(other.number_), failed_(std::move(other.failed_)),
        is_open_(std::exchange(other.is_open_, false)) {}
  Session& operator=(Session&&) = delete;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Ends the session. It does not throw if the server cannot be reached: the session ends there when
  /// it was not used for some time.
  ~Session() {
    try {
      close();
    } catch (...) {
    }
  }

  /// Its name on the server, and the version of the model.
  const std::string& id() const noexcept { return id_; }
  std::int64_t version() const noexcept { return version_; }

  /// The outputs of one run, which assigns variables of the session. By default the signature is that of
  /// the session, and all outputs are sent. A call that failed may be repeated: if the server has run it,
  /// the outputs are those of that run.
  Tensors predict(const Tensors& inputs, const std::string& signature = "",
                  const std::vector<std::string>& outputs = {}) {
    Plan plan;
    plan.steps = 0;
    plan.signature = signature;
    plan.outputs = outputs;
    const std::string body = detail::write_session_request(plan, inputs);
    if (body != failed_) number_++;
    failed_ = body;
    const std::string request = detail::numbered(body, number_);
    try {
      const std::string found = http_.call(path_ + ":predict", &request, detail::kProtobuf);
      Tensors outputs = detail::read(found, detail::read_response);
      failed_.clear();
      return outputs;
    } catch (const Error& error) {
      if (error.code() == "ABORTED") failed_.clear();  // the number was used
      throw;
    }
  }

  /// Calls `each` with the outputs of every run, as the server computes them, until it returns false: the
  /// server then completes the run in progress, and begins no other. Returns the number of runs. If the
  /// request arrives twice, because a proxy repeats it, the code of the error is ABORTED.
  std::size_t generate(const Tensors& inputs, const Plan& plan, const std::function<bool(const Tensors&)>& each) {
    std::size_t runs = 0;
    bool ended = false;
    std::string text;
    failed_.clear();
    const std::string request = detail::numbered(detail::write_session_request(plan, inputs), ++number_);
    http_.stream(path_ + ":generate", request, plan.timeout,
                 [&](std::string_view part) {
                   text += part;
                   for (std::size_t end; !ended && (end = text.find("\n\n")) != std::string::npos;) {
                     const std::string event = text.substr(0, end);
                     text.erase(0, end + 2);
                     ended = !handle(event, each, runs);
                   }
                   return !ended;
                 });
    if (!ended) throw Error(0, "UNAVAILABLE", "the stream ended early");
    return runs;
  }

  /// Ends the session, if it has not ended.
  void close() {
    if (!std::exchange(is_open_, false)) return;
    try {
      http_.call(path_, nullptr, "", "DELETE");
    } catch (const Error& error) {
      if (error.code() != "NOT_FOUND") throw;
    }
  }

 private:
  static std::string member(const std::string& text, const std::string& name) {
    std::size_t at = 0;
    const auto found = detail::string_after(text, name, at);
    if (!found) throw std::invalid_argument("it is no session");
    return *found;
  }

  /// Whether more events are wanted after this one.
  static bool handle(const std::string& event, const std::function<bool(const Tensors&)>& each, std::size_t& runs) {
    const std::string kind = detail::field_of(event, "event"), data = detail::field_of(event, "data");
    if (kind == "end") return false;
    if (kind == "error") {
      std::size_t at = 0;
      const auto code = detail::string_after(data, "code", at);
      at = 0;
      throw Error(200, code.value_or("INTERNAL"), detail::string_after(data, "error", at).value_or(data));
    }
    runs++;
    return each(detail::read(data, [](const std::string& text) {
      return detail::read_response(detail::from_base64(text));
    }));
  }

  detail::Http http_;
  std::string id_;
  std::int64_t version_;
  std::string path_;
  std::uint64_t number_ = 0;  // of the last request
  std::string failed_{};      // the last request of `predict`, if it failed
  bool is_open_ = true;
};

}  // namespace graphc::serving
