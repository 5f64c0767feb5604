// A client of `graphc serve` for C++17 and libcurl: include this file, which needs the two
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

#include <curl/curl.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "tensor.hpp"
#include "wire.hpp"

namespace graphc::serving {

/// Why a call failed. `what()` is the server's message.
class Error : public std::runtime_error {
 public:
  Error(int status, std::string code, const std::string& message)
      : std::runtime_error(message), status_(status), code_(std::move(code)) {}

  /// The HTTP status; 0 if there was no answer.
  int status() const noexcept { return status_; }

  /// gRPC's name of the error, such as NOT_FOUND; DEADLINE_EXCEEDED or UNAVAILABLE without an answer.
  const std::string& code() const noexcept { return code_; }

 private:
  int status_;
  std::string code_;
};

struct Options {
  std::string token{};                          ///< a bearer token
  std::chrono::milliseconds timeout{30'000};    ///< how long a call may take
  std::string authority{};                      ///< a PEM file, for https; by default the system's
};

/// Calls the models of the server at an address such as `http://localhost:8501`.
class Client {
 public:
  explicit Client(std::string address, Options options = {})
      : address_(std::move(address)), options_(std::move(options)), curl_(start(), curl_easy_cleanup) {
    while (!address_.empty() && address_.back() == '/') address_.pop_back();
  }

  /// The outputs of a signature.
  Tensors predict(const Target& target, const Tensors& inputs) {
    const std::string body = detail::write_request(target, inputs);
    return read(call(path(target) + ":predict", &body, "application/x-protobuf"), detail::read_response);
  }

  /// The state of each version of a model: {3: "AVAILABLE"}.
  std::map<std::int64_t, std::string> status(const std::string& model) {
    return read(call(path(model)), [](const std::string& body) {
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
  std::string metadata(const Target& target) { return call(path(target) + "/metadata"); }

  /// The response to a body of JSON. The verb is "predict", "classify" or "regress".
  std::string json(const Target& target, const std::string& verb, const std::string& body) {
    return call(path(target) + ":" + verb, &body, "application/json");
  }

 private:
  static CURL* start() {
    static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL* made = once == CURLE_OK ? curl_easy_init() : nullptr;
    if (made == nullptr) throw std::runtime_error("libcurl does not start");
    return made;
  }

  std::string path(const Target& target) const {
    std::string found = "/v1/models/" + quoted(target.model);
    if (target.version) found += "/versions/" + std::to_string(*target.version);
    if (!target.label.empty()) found += "/labels/" + quoted(target.label);
    return found;
  }

  std::string quoted(const std::string& name) const {
    char* text = curl_easy_escape(curl_.get(), name.c_str(), static_cast<int>(name.size()));
    std::string found = text;
    curl_free(text);
    return found;
  }

  /// The body of the response. A request with a body is a POST.
  std::string call(const std::string& path, const std::string* body = nullptr, const std::string& type = "") {
    curl_slist* headers = curl_slist_append(nullptr, "Expect:");  // not `Expect: 100-continue`
    if (body != nullptr) headers = curl_slist_append(headers, ("content-type: " + type).c_str());
    if (!options_.token.empty()) {
      headers = curl_slist_append(headers, ("authorization: Bearer " + options_.token).c_str());
    }
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> owned(headers, curl_slist_free_all);
    CURL* curl = curl_.get();
    curl_easy_reset(curl);  // the connection stays open
    std::string answer;
    curl_easy_setopt(curl, CURLOPT_URL, (address_ + path).c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout.count()));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, detail::append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (!options_.authority.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options_.authority.c_str());
    if (body != nullptr) {
      curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
      curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->c_str());
    }
    check(curl_easy_perform(curl));
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) return answer;
    std::size_t at = 0;
    const auto error = detail::string_after(answer, "error", at);
    throw Error(static_cast<int>(status), detail::code_of(status), error.value_or(answer.substr(0, 200)));
  }

  void check(CURLcode result) const {
    if (result == CURLE_OPERATION_TIMEDOUT) {
      throw Error(0, "DEADLINE_EXCEEDED", "no answer within " + std::to_string(options_.timeout.count()) + " ms");
    }
    if (result != CURLE_OK) throw Error(0, "UNAVAILABLE", address_ + ": " + curl_easy_strerror(result));
  }

  template <typename Read>
  static std::invoke_result_t<Read, const std::string&> read(const std::string& body, Read found) {
    try {
      return found(body);
    } catch (const std::exception& error) {
      throw Error(200, "INTERNAL", std::string("the response cannot be read: ") + error.what());
    }
  }

  std::string address_;
  Options options_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
};

}  // namespace graphc::serving
