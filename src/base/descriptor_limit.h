#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// How many descriptors this process may have open, after its soft limit was raised to the hard
/// one. Where that fails it stays what it was.
std::uint64_t raise_descriptor_limit();

/// How many descriptors this process may have open.
[[nodiscard]] std::uint64_t descriptor_limit();

/// How many it has open; 0 where the kernel does not say.
[[nodiscard]] std::size_t open_descriptors();

}  // namespace heddle
