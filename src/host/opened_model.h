#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/host_model.h"
#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "fetch/model_fetch.h"
#include "host/offer.h"
#include "store/model_source.h"

namespace heddle::host {

/// A configured model as a host finds it, or why it cannot be served there.
struct OpenedModel {
  config::ModelConfig config{};
  /// Its weights by rank; one, where it is not sharded. None of one that an external engine serves.
  Result<std::vector<agent::HostModel>> ranks = std::vector<agent::HostModel>{};
  /// Its stages, where it is cut into 2, 3, ... for several hosts to fetch together.
  std::vector<std::vector<agent::HostModel>> cuts{};
  /// As store::digest() has it, with the room for adapters; empty for an external engine.
  std::string digest{};
  /// Why requests for an adapter fail, by name; of the others nothing is known against them.
  std::map<std::string, Error> adapter_failures{};
  /// Where the model is fetched from, as it is in no cache. Empty where it is, or is no such model.
  std::string source{};
  /// Whether it is known what the model is. Else nothing but its source is, which is to be asked.
  bool known = true;
};

/// The most that heddle's own cache may hold, in bytes; 0: as much as there is room for.
/// kInvalidArgument where HEDDLE_CACHE_BUDGET is no size.
[[nodiscard]] Result<std::uint64_t> cache_budget(const store::Environment& environment);

/// Where models are fetched to and how, as the environment of this process says.
[[nodiscard]] fetch::PullOptions fetch_options(const config::Config& config);

/// Finds and opens one model. Reads files: not on the loop.
[[nodiscard]] OpenedModel open_model(const config::Config& config,
                                     const config::ModelConfig& model,
                                     const agent::HostGeometry& geometry);

/// The directory of an adapter of that name in one of these folders (store::find_adapter_in), which
/// fits a model that has room for it. kInvalidArgument for a larger rank than
/// ModelSpec::adapter_rank and for files that are damaged; else as store::Adapter::open(). Reads
/// files: not on the loop.
[[nodiscard]] Result<std::string> find_adapter(const std::vector<std::string>& folders,
                                               const std::string& named,
                                               const agent::HostModel& base);

/// Finds and opens the models of `config`. Reads files: not on the loop.
[[nodiscard]] std::vector<OpenedModel> open_models(const config::Config& config,
                                                   const agent::HostGeometry& geometry);

/// Of a model that was opened where it is: has it be one that comes from `source`, of which the
/// host has nothing but the outline. In a cluster it has cuts. For whoever plays such hosts.
void take_for_fetched(const std::string& source,
                      bool in_cluster,
                      const config::Config& config,
                      const agent::HostGeometry& geometry,
                      OpenedModel& opened);

/// The most tokens of a step: what is configured, or what suits the smallest device and the models
/// that can be opened. Reads files.
[[nodiscard]] std::int64_t choose_batch_tokens(const config::Config& config);

/// What a host of these devices can do about the models that it knows, in their order.
[[nodiscard]] std::vector<Offer> offers(const config::Config& config,
                                        HostId host,
                                        const std::vector<OpenedModel>& models);

}  // namespace heddle::host
