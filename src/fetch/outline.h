#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fetch/model_fetch.h"
#include "store/model_source.h"

namespace heddle::fetch {

/// A model without its weights: a folder with all of its files, of which those with weights are as
/// long as they are, have their headers, and else are a hole. What a model is and needs can be read
/// from it, as from the model; its file `.source` says of which content it is.
struct Outline {
  std::filesystem::path directory{};  ///< Or the first GGUF file.
  bool whole = false;    ///< The model was in its cache already: this is its directory there.
  bool changed = false;  ///< There was none, or one of another content.
};

/// Fetches what of a model its outline needs, where that is not there yet; of a model in GGUF files
/// that is all of it. As pull() fails.
[[nodiscard]] Result<Outline> fetch_outline(std::string_view model,
                                            const PullOptions& options,
                                            PullWatch& watch,
                                            const std::stop_token& stop);

/// The outline of a model that was fetched before; nothing where it was not.
[[nodiscard]] std::optional<std::filesystem::path> find_outline(const store::ModelPlaces& places,
                                                                std::string_view model);

/// Whether an outline is one of the files that the source has now.
[[nodiscard]] bool is_outline_of(const std::filesystem::path& outline,
                                 const std::vector<Object>& files);

/// What an outline knows of the bytes of a file with weights: its header, and what stands before.
[[nodiscard]] Result<std::string> read_front_of(const std::filesystem::path& file);

/// Whether a file has weights, by its name.
[[nodiscard]] bool has_weights(std::string_view file);

}  // namespace heddle::fetch
