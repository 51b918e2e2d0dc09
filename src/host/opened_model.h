#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host_model.h"
#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "host/offer.h"

namespace heddle::host {

/// A configured model as a host finds it, or why it cannot be served there.
struct OpenedModel {
  config::ModelConfig config{};
  /// Its weights by rank; one, where it is not sharded. None of one that an external engine serves.
  Result<std::vector<agent::HostModel>> ranks = std::vector<agent::HostModel>{};
  std::string digest{};  ///< As store::digest() has it; empty for an external engine.
};

/// Finds and opens the models of `config`. Reads files: not on the loop.
[[nodiscard]] std::vector<OpenedModel> open_models(const config::Config& config,
                                                   const agent::HostGeometry& geometry);

/// The most tokens of a step: what is configured, or what suits the smallest device and the models
/// that can be opened. Reads files.
[[nodiscard]] std::int64_t choose_batch_tokens(const config::Config& config);

/// What a host of these devices can do about the models, in their order.
[[nodiscard]] std::vector<Offer> offers(const config::Config& config,
                                        HostId host,
                                        const std::vector<OpenedModel>& models);

}  // namespace heddle::host
