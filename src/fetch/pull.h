#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fetch/object.h"
#include "fetch/source.h"
#include "fetch/transfer.h"
#include "store/model_source.h"

namespace heddle::fetch {

struct PullOptions {
  store::ModelPlaces places{};
  store::Environment environment{};  ///< Endpoints and credentials are read from it.
  SourceOptions source{};
  TransferOptions transfer{};
  std::uint64_t budget = 0;  ///< Of heddle's own cache, in bytes; 0: none.
};

/// Hears how a pull goes. Called by its threads, one at a time.
class PullWatch {
 public:
  virtual ~PullWatch() = default;

  /// Another process fetches this model; its end is awaited.
  virtual void waits() = 0;
  /// These were removed, to make room.
  virtual void removed(const std::vector<std::string>& models) = 0;
  /// These are to be fetched, and those are not read by heddle.
  virtual void begins(std::span<const Job> files, std::span<const Object> left_out) = 0;
  /// So many bytes of a file, by its place in that list, are there.
  virtual void moved(std::size_t file, std::uint64_t bytes) = 0;
  /// A file is there, and is compared with its digest.
  virtual void checking(std::size_t file) = 0;
  virtual void came(std::size_t file) = 0;
  /// A request failed and is made again after `wait`.
  virtual void retries(const std::string& why, Duration wait) = 0;
};

struct Pulled {
  std::filesystem::path directory{};  ///< Of the model.
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
