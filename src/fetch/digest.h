#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fetch/object.h"

namespace heddle::fetch {

/// Bytes in hexadecimal, in small letters.
[[nodiscard]] std::string hexadecimal(std::string_view bytes);

/// SHA-256, in hexadecimal.
[[nodiscard]] std::string sha256_of(std::string_view text);

/// Reads a file and compares it with the digest of its object; nothing is read where there is none.
/// kCorrupt, with both digests, where it is another content; kCancelled after a stop; as
/// File fails.
[[nodiscard]] Result<void> check_digest(const std::filesystem::path& path,
                                        const Object& object,
                                        const std::stop_token& stop);

}  // namespace heddle::fetch
