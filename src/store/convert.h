#pragma once

#include <cstddef>

#include "spec/dtype.h"
#include "store/stored_tensor.h"

namespace heddle::store {

/// Whether elements of type `from` are converted to `to`: F32, F16, BF16, kF8Scaled and the blocks
/// that gguf::decode() knows to float32 and bfloat16.
[[nodiscard]] bool can_convert(StoredType from, spec::DType to);

/// Whether the bytes of both are the same, so that converting is copying.
[[nodiscard]] bool same_bytes(StoredType from, spec::DType to);

/// Converts `count` elements. Narrowing rounds to nearest, ties to even; what is too large becomes
/// infinite; a NaN stays a NaN. Neither side need be aligned; they must not overlap.
/// Requires can_convert(from, to), and whole blocks.
void convert(
    StoredType from, const std::byte* source, spec::DType to, std::byte* target, std::size_t count);

}  // namespace heddle::store
