#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace heddle::store {

/// What tells a model from any other without reading its weights: SHA-256, in hexadecimal, over
/// the names and contents of its text files (configuration, tokenizer, templates) and over the
/// names, sizes and headers of its weights. Times and places of files do not matter.
/// kNotFound where there is no such directory, and as File and read_text fail.
[[nodiscard]] Result<std::string> digest(const std::filesystem::path& directory);

}  // namespace heddle::store
