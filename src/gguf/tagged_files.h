#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace heddle::gguf {

/// Of a repository's files those of the model that a tag such as "Q4_K_M" names, its first one
/// first. The tag, in capitals or not, ends the file's name behind "-" or ".", or is the name of
/// the file's folder; parts of split files are all there. Projectors for images and importance
/// matrices are no models. kNotFound with the GGUF files there are; kInvalidArgument where the tag
/// names several models.
[[nodiscard]] Result<std::vector<std::string>> tagged_files(const std::vector<std::string>& files,
                                                            std::string_view tag);

}  // namespace heddle::gguf
