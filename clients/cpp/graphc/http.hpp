// Requests by libcurl: time limits, errors, and responses that arrive in parts.

#pragma once

#include <curl/curl.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

namespace detail {

inline constexpr const char* kProtobuf = "application/x-protobuf";

/// What `found` reads in a response.
template <typename Read, typename Body>
std::invoke_result_t<Read, const Body&> read(const Body& body, Read found) {
  try {
    return found(body);
  } catch (const std::exception& error) {
    throw Error(200, "INTERNAL", std::string("the response cannot be read: ") + error.what());
  }
}

/// The server at an address, with one connection that stays open.
class Http {
 public:
  using Parts = std::function<bool(std::string_view)>;

  Http(std::string address, Options options)
      : address_(std::move(address)), options_(std::move(options)), curl_(start(), curl_easy_cleanup) {
    while (!address_.empty() && address_.back() == '/') address_.pop_back();
  }

  const std::string& address() const { return address_; }
  const Options& options() const { return options_; }

  std::string quoted(const std::string& name) const {
    char* text = curl_easy_escape(curl_.get(), name.c_str(), static_cast<int>(name.size()));
    std::string found = text;
    curl_free(text);
    return found;
  }

  /// The body of the response. A request with a body is a POST. libcurl sends it again if a connection
  /// that stayed open ends without an answer: the server may get it twice.
  std::string call(const std::string& path, const std::string* body = nullptr, const std::string& type = "",
                   const char* method = nullptr) {
    std::string answer;
    CURL* curl = curl_.get();
    curl_easy_reset(curl);  // the connection stays open
    const Headers headers = prepare(curl, path, body, type, options_.timeout);
    if (method != nullptr) curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    check(curl_easy_perform(curl), "no answer", options_.timeout);
    check_status(curl, answer);
    return answer;
  }

  /// Passes the body of the response to `parts` as it arrives, on a connection of its own, until
  /// `parts` returns false. A timeout of 0 is none.
  void stream(const std::string& path, const std::string& body, std::chrono::milliseconds timeout, const Parts& parts) {
    const Handle handle(start(), curl_easy_cleanup);
    CURL* curl = handle.get();
    const Headers headers = prepare(curl, path, &body, kProtobuf, timeout);
    Arriving arriving{curl, parts};
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, arrived);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &arriving);
    const CURLcode result = curl_easy_perform(curl);
    if (arriving.thrown) std::rethrow_exception(arriving.thrown);
    if (arriving.stopped) return;
    check(result, "the stream did not end", timeout);
    check_status(curl, arriving.error);
  }

 private:
  using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
  using Headers = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

  /// A response, part by part.
  struct Arriving {
    CURL* curl;
    const Parts& parts;
    bool stopped = false;
    std::exception_ptr thrown{};
    std::string error{};
  };

  static CURL* start() {
    static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL* made = once == CURLE_OK ? curl_easy_init() : nullptr;
    if (made == nullptr) throw std::runtime_error("libcurl does not start");
    return made;
  }

  static std::size_t arrived(char* data, std::size_t, std::size_t size, void* into) {
    Arriving& arriving = *static_cast<Arriving*>(into);
    try {
      if (status_of(arriving.curl) != 200) arriving.error.append(data, size);
      else arriving.stopped = !arriving.parts({data, size});
    } catch (...) {  // it must not pass through libcurl
      arriving.thrown = std::current_exception();
    }
    return arriving.stopped || arriving.thrown ? 0 : size;
  }

  Headers prepare(CURL* curl, const std::string& path, const std::string* body, const std::string& type,
                  std::chrono::milliseconds timeout) const {
    Headers headers(curl_slist_append(nullptr, "Expect:"), curl_slist_free_all);  // not `Expect: 100-continue`
    if (body != nullptr) curl_slist_append(headers.get(), ("content-type: " + type).c_str());
    if (!options_.token.empty()) {
      curl_slist_append(headers.get(), ("authorization: Bearer " + options_.token).c_str());
    }
    curl_easy_setopt(curl, CURLOPT_URL, (address_ + path).c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
    if (!options_.authority.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options_.authority.c_str());
    if (body != nullptr) {
      curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
      curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->c_str());
    }
    return headers;
  }

  static long status_of(CURL* curl) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  static void check_status(CURL* curl, const std::string& answer) {
    const long status = status_of(curl);
    if (status == 200) return;
    std::size_t at = 0;
    const auto error = string_after(answer, "error", at);
    throw Error(static_cast<int>(status), code_of(status), error.value_or(answer.substr(0, 200)));
  }

  void check(CURLcode result, const std::string& what, std::chrono::milliseconds timeout) const {
    if (result == CURLE_OPERATION_TIMEDOUT) {
      throw Error(0, "DEADLINE_EXCEEDED", what + " within " + std::to_string(timeout.count()) + " ms");
    }
    if (result != CURLE_OK) throw Error(0, "UNAVAILABLE", address_ + ": " + curl_easy_strerror(result));
  }

  std::string address_;
  Options options_;
  Handle curl_;
};

}  // namespace detail

}  // namespace graphc::serving
