#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fetch/model_fetch.h"

namespace heddle::fetch {

struct Pulled {
  std::filesystem::path directory{};  ///< Of the model; or its first GGUF file.
  std::string revision{};             ///< The commit, of a model of the hub.
  std::size_t files = 0;              ///< All that the model has.
  std::uint64_t bytes = 0;            ///< Of these.
  std::uint64_t fetched_bytes = 0;    ///< Of those that were not there whole.
};

/// Fetches a model into its cache, where store::find_model finds it; what is there is not fetched
/// again. A model appears when all of it is there; after a failure or a stop, what has come waits
/// for the next pull. kResourceExhausted, before a byte is fetched, where the disk or the budget
/// has no room for it; else as parse_source_name(), open_source(), Source::list(), choose(),
/// open_place() and transfer() fail.
[[nodiscard]] Result<Pulled> pull(std::string_view model,
                                  const PullOptions& options,
                                  PullWatch& watch,
                                  const std::stop_token& stop);

}  // namespace heddle::fetch
