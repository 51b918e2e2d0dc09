#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fetch/object.h"

namespace heddle::fetch {

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kWeightsFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
/// An index has no more bytes than this.
inline constexpr std::uint64_t kIndexBytesMax = 100U << 20U;

/// The files that heddle reads beside weights, config.json first.
[[nodiscard]] std::span<const std::string_view> text_names();

/// What of a listing is fetched.
struct Choice {
  std::vector<Object> wanted{};    ///< Small ones first, then weights by name.
  std::vector<Object> left_out{};  ///< What heddle does not read.
};

/// Of a repository the GGUF files that a tag names (gguf/tagged_files.h). As that fails; `model` is
/// for messages.
[[nodiscard]] Result<Choice> choose_gguf(std::vector<Object> objects,
                                         std::string_view model,
                                         std::string_view tag);

/// Chooses what heddle reads: text files, and model.safetensors or else what the index names.
/// @param model  For messages.
/// @param read   Reads a small file, which is the index.
/// kNotFound where config.json or weights are missing, with what there is instead, GGUF files to be
/// named by their tag among it; kCorrupt where
/// the index names what is not there or not in the folder; what `read` returns.
[[nodiscard]] Result<Choice> choose(std::vector<Object> objects,
                                    std::string_view model,
                                    const std::function<Result<std::string>(const Object&)>& read);

}  // namespace heddle::fetch
