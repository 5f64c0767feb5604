// Arrays for graphc/serving.hpp.

#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace graphc::serving {

/// The data types, with their numbers in the protocol.
enum class Type {
  Float = 1, Double = 2, Int32 = 3, Uint8 = 4, Int16 = 5, Int8 = 6, String = 7, Complex64 = 8,
  Int64 = 9, Bool = 10, Bfloat16 = 14, Uint16 = 17, Complex128 = 18, Half = 19, Uint32 = 22, Uint64 = 23
};

namespace detail {

template <typename T> constexpr Type type_of() {
  if constexpr (std::is_same_v<T, float>) return Type::Float;
  else if constexpr (std::is_same_v<T, double>) return Type::Double;
  else if constexpr (std::is_same_v<T, std::int8_t>) return Type::Int8;
  else if constexpr (std::is_same_v<T, std::int16_t>) return Type::Int16;
  else if constexpr (std::is_same_v<T, std::int32_t>) return Type::Int32;
  else if constexpr (std::is_same_v<T, std::int64_t>) return Type::Int64;
  else if constexpr (std::is_same_v<T, std::uint8_t>) return Type::Uint8;
  else if constexpr (std::is_same_v<T, std::uint16_t>) return Type::Uint16;
  else if constexpr (std::is_same_v<T, std::uint32_t>) return Type::Uint32;
  else if constexpr (std::is_same_v<T, std::uint64_t>) return Type::Uint64;
  else if constexpr (std::is_same_v<T, bool>) return Type::Bool;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return Type::Complex64;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return Type::Complex128;
  else static_assert(!sizeof(T*), "no type of tensors; use a fixed-width type such as std::int64_t");
}

/// The bytes of an element; 0 for strings and for types that are not supported.
inline std::size_t size_of(Type type) {
  switch (type) {
    case Type::Uint8: case Type::Int8: case Type::Bool: return 1;
    case Type::Int16: case Type::Uint16: case Type::Bfloat16: case Type::Half: return 2;
    case Type::Float: case Type::Int32: case Type::Uint32: return 4;
    case Type::Double: case Type::Int64: case Type::Uint64: case Type::Complex64: return 8;
    case Type::Complex128: return 16;
    default: return 0;
  }
}

inline std::size_t elements(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (std::int64_t size : shape) {
    if (size < 0) throw std::invalid_argument("a size of the shape is negative");
    const auto more = static_cast<std::size_t>(size);
    if (more != 0 && count > SIZE_MAX / more) throw std::invalid_argument("the shape has too many elements");
    count *= more;
  }
  return count;
}

}  // namespace detail

/// An array of one type, in row-major order. The memory is little-endian, as that of the machine.
class Tensor {
 public:
  using Shape = std::vector<std::int64_t>;

  /// A tensor of numbers, for example `Tensor::of<float>({1, 3}, {1, 0, 0})`.
  template <typename T> static Tensor of(Shape shape, const std::vector<T>& values) {
    std::string memory(values.size() * sizeof(T), '\0');
    if constexpr (std::is_same_v<T, bool>) {
      for (std::size_t i = 0; i < values.size(); i++) memory[i] = values[i];
    } else if (!values.empty()) {
      std::memcpy(memory.data(), values.data(), memory.size());
    }
    return {detail::type_of<T>(), std::move(shape), std::move(memory)};
  }

  /// A tensor of strings.
  static Tensor of_strings(Shape shape, std::vector<std::string> strings) {
    return {Type::String, std::move(shape), {}, std::move(strings)};
  }

  /// A tensor of any type from its memory: the bits of Half and Bfloat16, for example.
  Tensor(Type type, Shape shape, std::string memory, std::vector<std::string> strings = {})
      : type_(type), shape_(std::move(shape)), memory_(std::move(memory)), strings_(std::move(strings)) {
    const std::size_t size = detail::size_of(type_), count = detail::elements(shape_);
    const std::size_t given = size ? memory_.size() / size : strings_.size();
    if (given != count || (size && memory_.size() % size)) {
      throw std::invalid_argument("the shape needs " + std::to_string(count) + " elements, got " +
                                  std::to_string(given));
    }
  }

  Type type() const noexcept { return type_; }
  const Shape& shape() const noexcept { return shape_; }
  const std::string& memory() const noexcept { return memory_; }

  /// The values. T must be the type of the tensor.
  template <typename T> std::vector<T> values() const {
    expect(detail::type_of<T>());
    std::vector<T> found(memory_.size() / sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      for (std::size_t i = 0; i < found.size(); i++) found[i] = memory_[i] != 0;
    } else if (!found.empty()) {
      std::memcpy(found.data(), memory_.data(), memory_.size());
    }
    return found;
  }

  const std::vector<std::string>& strings() const {
    expect(Type::String);
    return strings_;
  }

  bool operator==(const Tensor& other) const {
    return type_ == other.type_ && shape_ == other.shape_ && memory_ == other.memory_ && strings_ == other.strings_;
  }

 private:
  void expect(Type type) const {
    if (type == type_) return;
    throw std::invalid_argument("the tensor has type " + std::to_string(static_cast<int>(type_)) +
                                ", not " + std::to_string(static_cast<int>(type)));
  }

  Type type_;
  Shape shape_;
  std::string memory_;
  std::vector<std::string> strings_;
};

using Tensors = std::map<std::string, Tensor>;

}  // namespace graphc::serving
