// What graphc/serving.hpp sends and receives: protocol buffers as in serving.proto, and JSON.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor.hpp"

namespace graphc::serving {

/// What a call names: a model; by default the server chooses the version and the signature.
struct Target {
  Target(std::string name) : model(std::move(name)) {}
  Target(const char* name) : model(name) {}

  std::string model;
  std::optional<std::int64_t> version{};
  std::string label{};
  std::string signature{};
  std::vector<std::string> outputs{};  ///< only these outputs of predict; by default all
};

/// Several runs of a session.
struct Plan {
  std::int64_t steps = 1;                          ///< how many there are at most
  std::map<std::string, std::string> feedback{};   ///< input -> the output of the run before
  Tensors stop{};                                  ///< output -> values: a run is the last one if all its elements are among them
  std::string signature{};                         ///< by default that of the session
  std::vector<std::string> outputs{};              ///< only these; by default all
  std::chrono::milliseconds timeout{0};            ///< of all runs together; 0 is none
};

namespace detail {

// -- protocol buffers, as in serving.proto --------------------------------------------------------

inline void write_varint(std::string& into, std::uint64_t value) {
  for (; value >= 128; value >>= 7) into += static_cast<char>(value | 128);
  into += static_cast<char>(value);
}

inline void write_number(std::string& into, int field, std::uint64_t value) {
  write_varint(into, static_cast<std::uint64_t>(field) << 3);
  write_varint(into, value);
}

inline void write_bytes(std::string& into, int field, std::string_view value) {
  write_varint(into, static_cast<std::uint64_t>(field) << 3 | 2);
  write_varint(into, value.size());
  into += value;
}

/// An entry of a map.
inline void write_entry(std::string& into, int field, std::string_view name, std::string_view value) {
  std::string entry;
  write_bytes(entry, 1, name);
  write_bytes(entry, 2, value);
  write_bytes(into, field, entry);
}

inline std::string write_tensor(const Tensor& tensor) {
  std::string shape, proto;
  for (std::int64_t size : tensor.shape()) {
    std::string axis;
    write_number(axis, 1, static_cast<std::uint64_t>(size));
    write_bytes(shape, 2, axis);
  }
  write_number(proto, 1, static_cast<std::uint64_t>(tensor.type()));
  write_bytes(proto, 2, shape);
  if (tensor.type() != Type::String) {
    write_bytes(proto, 4, tensor.memory());
    return proto;
  }
  for (const std::string& each : tensor.strings()) write_bytes(proto, 8, each);
  return proto;
}

/// A PredictRequest of a Target, or the first fields of the SessionRequest of a Plan.
template <typename Of>
std::string write_request(const Of& target, const Tensors& inputs) {
  std::string spec, request;
  write_bytes(spec, 3, target.signature);
  write_bytes(request, 1, spec);
  for (const auto& [name, tensor] : inputs) write_entry(request, 2, name, write_tensor(tensor));
  for (const std::string& name : target.outputs) write_bytes(request, 3, name);
  return request;
}

inline std::string write_session_request(const Plan& plan, const Tensors& inputs) {
  std::string request = write_request(plan, inputs);
  write_number(request, 4, static_cast<std::uint64_t>(plan.steps));
  for (const auto& [input, output] : plan.feedback) write_entry(request, 5, input, output);
  for (const auto& [output, values] : plan.stop) write_entry(request, 6, output, write_tensor(values));
  return request;
}

/// A SessionRequest with its number, by which the server knows a request that is repeated.
inline std::string numbered(std::string request, std::uint64_t number) {
  write_number(request, 7, number);
  return request;
}

inline std::uint64_t read_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) throw std::invalid_argument("it ends early");
    const auto next = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(next & 127) << shift;
    if (next < 128) return value;
  }
  throw std::invalid_argument("it has a number of more than 64 bits");
}

/// Calls `visit(number, bytes)` for each field of a message; the bytes of a number are its varint.
template <typename Visit> void each_field(std::string_view message, Visit visit) {
  while (!message.empty()) {
    const std::uint64_t tag = read_varint(message);
    std::string_view rest = message;
    std::uint64_t size = 0;
    switch (tag & 7) {
      case 0: read_varint(rest); size = message.size() - rest.size(); break;
      case 1: size = 8; break;
      case 2: size = read_varint(message); break;
      case 5: size = 4; break;
      default: throw std::invalid_argument("it has an unknown wire type");
    }
    if (size > message.size()) throw std::invalid_argument("it ends early");
    visit(static_cast<int>(tag >> 3), message.substr(0, size));
    message.remove_prefix(size);
  }
}

/// A TensorProto: its values are in tensor_content (4) or in the field of its type (5 to 17).
inline Tensor read_tensor(std::string_view message) {
  std::uint64_t number = 0;
  Tensor::Shape shape;
  std::string content;
  std::vector<std::string> strings;
  std::vector<std::pair<int, std::string_view>> values;
  each_field(message, [&](int field, std::string_view value) {
    if (field == 1) number = read_varint(value);
    else if (field == 2) each_field(value, [&](int axis, std::string_view dim) {
      if (axis != 2) return;
      shape.push_back(0);
      each_field(dim, [&](int part, std::string_view size) {
        if (part == 1) shape.back() = static_cast<std::int64_t>(read_varint(size));
      });
    });
    else if (field == 4) content = value;
    else if (field == 8) strings.emplace_back(value);
    else if (field >= 5) values.emplace_back(field, value);
  });
  const auto type = static_cast<Type>(number);
  const std::size_t size = size_of(type), count = elements(shape);
  if (type == Type::String) {
    strings.resize(std::max(count, strings.size()), strings.empty() ? "" : strings.back());
    return Tensor::of_strings(shape, std::move(strings));
  }
  if (size == 0) throw std::invalid_argument("DataType " + std::to_string(number) + " is not supported");
  if (!content.empty()) return {type, shape, std::move(content)};
  for (auto [field, value] : values) {
    if (field == 5 || field == 6 || field == 9 || field == 12) content += value;  // memory
    else while (!value.empty()) {
      const std::uint64_t element = read_varint(value);
      for (std::size_t i = 0; i < size; i++) content += static_cast<char>(element >> (8 * i));
    }
  }
  if (count > SIZE_MAX / size) throw std::invalid_argument("a tensor is too large");
  content.reserve(count * size);
  const std::string last = content.empty() ? std::string(size, '\0') : content.substr(content.size() - size);
  while (content.size() < count * size) content += last;
  return {type, shape, std::move(content)};
}

inline Tensors read_response(std::string_view message) {
  Tensors outputs;
  each_field(message, [&](int field, std::string_view entry) {
    if (field != 1) return;
    std::string name;
    std::string_view tensor;
    each_field(entry, [&](int part, std::string_view value) {
      if (part == 1) name = value;
      else if (part == 2) tensor = value;
    });
    outputs.emplace(name, read_tensor(tensor));
  });
  return outputs;
}

// -- JSON: the few strings that are needed of a response -------------------------------------------

inline void write_utf8(std::string& into, std::uint32_t point) {
  if (point < 0x80) {
    into += static_cast<char>(point);
    return;
  }
  const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  const std::uint32_t first[] = {0, 0xC0, 0xE0, 0xF0};
  into += static_cast<char>(first[more] | point >> (6 * more));
  for (int i = more - 1; i >= 0; i--) into += static_cast<char>(0x80 | (point >> (6 * i) & 0x3F));
}

/// The string after `"key":`, from `at` on; `at` is then after it. Nothing if there is none.
inline std::optional<std::string> string_after(const std::string& text, const std::string& key, std::size_t& at) {
  at = text.find('"' + key + '"', at);
  if (at == std::string::npos) return {};
  at = text.find_first_not_of(" \t\r\n:", at + key.size() + 2);
  if (at == std::string::npos || text[at] != '"') return {};
  std::string found;
  std::uint32_t high = 0;  // of a pair of surrogates
  while (++at < text.size() && text[at] != '"') {
    if (text[at] != '\\' || at + 1 == text.size()) {
      found += text[at];
      continue;
    }
    const char kind = text[++at];
    if (kind != 'u') {
      const std::size_t place = std::string_view("bfnrt").find(kind);
      found += place == std::string_view::npos ? kind : "\b\f\n\r\t"[place];
      continue;
    }
    const auto unit = static_cast<std::uint32_t>(std::strtoul(text.substr(at + 1, 4).c_str(), nullptr, 16));
    at += 4;
    if (unit >> 10 == 0x36) high = unit;
    else write_utf8(found, unit >> 10 == 0x37 ? 0x10000 + ((high & 0x3FF) << 10) + (unit & 0x3FF) : unit);
  }
  return found;
}

/// A text as JSON.
inline std::string json_text(const std::string& text) {
  std::string found = "\"";
  for (char each : text) {
    if (each == '"' || each == '\\') found += '\\';
    found += each;
  }
  return found + '"';
}

// -- server-sent events ---------------------------------------------------------------------------

/// The value of a field of an event; "" if it has none.
inline std::string field_of(const std::string& event, const std::string& name) {
  const std::string lines = '\n' + event, start = '\n' + name + ": ";
  std::size_t at = lines.find(start);
  if (at == std::string::npos) return "";
  at += start.size();
  return lines.substr(at, lines.find('\n', at) - at);
}

inline std::string from_base64(const std::string& text) {
  static const std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (char letter : text) {
    if (letter == '=') break;
    const std::size_t value = letters.find(letter);
    if (value == std::string_view::npos) throw std::invalid_argument("it is not base64");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  return bytes;
}

inline std::string code_of(long status) {
  switch (status) {
    case 401: return "UNAUTHENTICATED";
    case 404: case 410: return "NOT_FOUND";
    case 408: case 504: return "DEADLINE_EXCEEDED";
    case 409: return "ABORTED";
    case 429: return "RESOURCE_EXHAUSTED";
    case 499: return "CANCELLED";
    case 405: case 501: return "UNIMPLEMENTED";
    case 503: return "UNAVAILABLE";
    default: return status < 500 ? "INVALID_ARGUMENT" : "INTERNAL";
  }
}

inline std::size_t append(char* data, std::size_t, std::size_t size, void* into) {
  static_cast<std::string*>(into)->append(data, size);
  return size;
}

}  // namespace detail

}  // namespace graphc::serving
