#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/host_model.h"
#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "core/serving.h"

namespace heddle::manager {

/// A model of the configuration, opened, or why it cannot be.
struct ConfiguredModel {
  config::ModelConfig config{};
  /// Its weights; an error for one that an external engine serves.
  Result<agent::HostModel> host = Error{Code::kUnavailable, "not opened"};
  /// Of a model that is sharded over several devices, which `host` is rank 0 of: ranks 1 and up.
  std::vector<agent::HostModel> shards{};
  ModelId id{};

  [[nodiscard]] bool external() const { return config.engine.has_value(); }
  /// Why requests for it fail.
  [[nodiscard]] std::optional<Error> failure() const {
    return external() || host ? std::nullopt : std::optional(host.error());
  }
};

/// Finds and opens the models of `config`. Reads files: not on the loop.
[[nodiscard]] std::vector<ConfiguredModel> open_models(const config::Config& config,
                                                       const agent::HostGeometry& geometry);

/// The most tokens of a step: what is configured, or what suits the smallest device and the models
/// that can be opened.
[[nodiscard]] std::int64_t choose_batch_tokens(const config::Config& config);

/// Who has which id. A model that is as it was keeps its id over a reload; one that has changed
/// (other weights, other type) gets a new one, so that what runs goes on with the old. Loop thread.
class ModelRegistry {
 public:
  /// Takes over `models` and gives them ids.
  void assign(std::vector<ConfiguredModel> models);

  /// In the order of the configuration.
  [[nodiscard]] const std::vector<ConfiguredModel>& models() const { return models_; }
  /// A model's or a shard's name; empty when there is no such model.
  [[nodiscard]] std::string name(ModelId id) const;
  /// What is known of every configured model, in order: from `known`, or why it cannot be served.
  [[nodiscard]] std::vector<core::ModelStatus> statuses(
      const std::vector<core::ModelStatus>& known) const;
  /// Null for one that is not configured now.
  [[nodiscard]] const ConfiguredModel* find(ModelId id) const;

 private:
  std::vector<ConfiguredModel> models_{};
  std::uint64_t ids_given_ = 0;
};

}  // namespace heddle::manager
