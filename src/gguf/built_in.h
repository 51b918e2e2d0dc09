#pragma once

#include "base/result.h"
#include "gguf/gguf_file.h"

namespace heddle::gguf {

/// Whether heddle's own engine serves the model, as far as its headers tell: kInvalidArgument,
/// naming it, for an architecture, a type of a tensor or a tokenizer that is not built in; other
/// codes, as config_json() has them, for a file that is wrong.
[[nodiscard]] Result<void> check_built_in(const GgufFile& file);

}  // namespace heddle::gguf
