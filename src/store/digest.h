#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace heddle::store {

/// What tells a model from any other without reading its weights: SHA-256, in hexadecimal, over
/// the names and contents of its text files (configuration, tokenizer, templates) and over the
/// names, sizes and headers of its weights. Times and places of files do not matter.
/// Of a GGUF file likewise: over the size and the header of each of its parts, whatever they are
/// called. kNotFound where there is no such model, and as File and read_text fail.
[[nodiscard]] Result<std::string> digest(const std::filesystem::path& model);

}  // namespace heddle::store
