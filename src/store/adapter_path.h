#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace heddle::store {

/// The directory of an adapter that somebody named who may have those in `folders` (absolute) and
/// no others: absolute, or relative to one of these, the first that has it. Symbolic links are
/// followed, of the directory and of its two files, and have to end in one of the folders too. The
/// answer is without links.
///
/// kInvalidArgument for a name outside of the folders, which says nothing of whether it exists;
/// kNotFound where there is no such directory, or one of the files is not there.
[[nodiscard]] Result<std::filesystem::path> find_adapter_in(std::span<const std::string> folders,
                                                            const std::string& named);

}  // namespace heddle::store
