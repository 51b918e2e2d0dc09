#pragma once

#include <cstdint>
#include <span>

#include "engine/pass.h"

namespace heddle::engine {

/// What a pass of these slices computes, as a number by which the ranks of a model compare notes:
/// positions, tokens, and who samples, in order; and the `room` for tokens, which decides in how
/// many rows. Not the names of sequences nor where their KV is. Two passes that differ have the
/// same one by chance, once in 2^64.
[[nodiscard]] std::uint64_t step_digest(std::span<const PassSlice> slices, std::int64_t room);

}  // namespace heddle::engine
