#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"

namespace heddle::store {

/// The files of a model beside its weights, by name: configuration, tokenizer, templates.
/// kNotFound where there is no such directory.
[[nodiscard]] Result<std::vector<std::filesystem::path>> text_files(
    const std::filesystem::path& directory);

}  // namespace heddle::store
