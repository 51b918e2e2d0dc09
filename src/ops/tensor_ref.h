#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "spec/dtype.h"

namespace heddle::ops {

using spec::DType;

/// Bytes of an element, for arithmetic on strides.
[[nodiscard]] inline std::int64_t dtype_size(DType dtype) {
  return static_cast<std::int64_t>(spec::dtype_bytes(dtype));
}

/// A borrowed, strided view of elements on some device. Strides count elements, not bytes.
template <class Byte>
struct BasicTensorRef {
  Byte* data = nullptr;  ///< nullptr: an optional tensor that is absent.
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, 3> shape{};
  std::array<std::int64_t, 3> stride{};

  [[nodiscard]] bool present() const { return data != nullptr; }

  /// The elements as host code or a kernel reads them; T must be what `dtype` says.
  template <class T>
  [[nodiscard]] auto* as() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return reinterpret_cast<Element*>(data);
  }

  operator BasicTensorRef<const std::byte>() const  // NOLINT(*-explicit-*): as T* to const T*.
    requires(!std::is_const_v<Byte>)
  {
    return {.data = data, .dtype = dtype, .rank = rank, .shape = shape, .stride = stride};
  }
};

using TensorRef = BasicTensorRef<std::byte>;
using ConstTensorRef = BasicTensorRef<const std::byte>;

/// The element type that stands for T in a tensor; bfloat16 has no C++ type here and is spelled
/// out.
template <class T>
constexpr DType kDTypeOf = std::same_as<std::remove_const_t<T>, float> ? DType::kF32 : DType::kI32;

/// A contiguous vector, matrix or stack of matrices over `data`.
template <class Byte>
[[nodiscard]] BasicTensorRef<Byte> tensor_1d(Byte* data, DType dtype, std::int64_t n) {
  return {.data = data, .dtype = dtype, .rank = 1, .shape = {n}, .stride = {1}};
}
template <class Byte>
[[nodiscard]] BasicTensorRef<Byte> tensor_2d(Byte* data,
                                             DType dtype,
                                             std::int64_t rows,
                                             std::int64_t columns) {
  return {
      .data = data, .dtype = dtype, .rank = 2, .shape = {rows, columns}, .stride = {columns, 1}};
}

/// Typed forms of the two above, for float and int32 elements.
template <class T>
[[nodiscard]] auto vector_of(T* data, std::int64_t n) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return tensor_1d(reinterpret_cast<Byte*>(data), kDTypeOf<T>, n);
}
template <class T>
[[nodiscard]] auto matrix_of(T* data, std::int64_t rows, std::int64_t columns) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return tensor_2d(reinterpret_cast<Byte*>(data), kDTypeOf<T>, rows, columns);
}

/// `count` columns of `matrix` from `first` on.
[[nodiscard]] inline TensorRef columns_of(const TensorRef& matrix,
                                          std::int64_t first,
                                          std::int64_t count) {
  TensorRef part = matrix;
  part.data += static_cast<std::size_t>(first) * spec::dtype_bytes(matrix.dtype);
  part.shape[1] = count;
  return part;
}

/// `count` heads of `head_dim` elements side by side in each row of `rows` [tokens, width], from
/// column `first` on, as a tensor [tokens, count, head_dim].
[[nodiscard]] inline TensorRef heads_of(const TensorRef& rows,
                                        std::int64_t first,
                                        std::int64_t count,
                                        std::int64_t head_dim) {
  return {.data = rows.data + static_cast<std::size_t>(first) * spec::dtype_bytes(rows.dtype),
          .dtype = rows.dtype,
          .rank = 3,
          .shape = {rows.shape[0], count, head_dim},
          .stride = {rows.stride[0], head_dim, 1}};
}

}  // namespace heddle::ops
