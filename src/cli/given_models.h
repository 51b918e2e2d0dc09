#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace heddle::cli {

/// Whether what `heddle serve` was given is a configuration: one file that is none of GGUF, or the
/// name of one (.yaml, .yml, .json) that is not there.
[[nodiscard]] bool is_configuration(const std::vector<std::string>& given);

/// The configuration that serves these models on this machine. Each is a GGUF file, a directory
/// with a checkpoint, a name of the hub or a URL, as `path` of a configuration takes it, and may
/// stand behind "NAME=". Without a name a file or folder has its own, and others the one they were
/// given by; their last part is an alias.
///
/// @param memory  What models take of this machine's memory ("4GiB"); empty: what a configuration
///     without sizes takes. With GPUs it is for models that wait for their turn.
/// kInvalidArgument, with what would be right, for what can be no model, and for two of one name.
[[nodiscard]] Result<config::Config> given_models(const std::vector<std::string>& given,
                                                  const std::string& memory);

/// The same as the text of a configuration, on a machine with or without GPUs.
[[nodiscard]] Result<std::string> document_of(const std::vector<std::string>& given,
                                              const std::string& memory,
                                              bool gpus);

}  // namespace heddle::cli
