#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "core/serving.h"
#include "host/offer.h"

namespace heddle::manager {

/// A model of the configuration, with what hosts have said that they can do about it.
struct ConfiguredModel {
  config::ModelConfig config{};
  std::map<HostId, host::Offer> offers{};  ///< Each host's last one.
  /// Of what is served under the name: that of the offer taken up first. Hosts that have another
  /// model under the name take no part. Empty of an external engine, and before any offer.
  std::string digest{};
  ModelId id{};
  std::vector<ModelId> shards{};  ///< Of a sharded model: ranks 1 and up.
  /// Of one that hosts may fetch together: the stages where it is cut into 2, 3, ...
  std::vector<std::vector<ModelId>> cuts{};
  std::set<HostId> alike{};  ///< The hosts that may do so, as largest_kind() has them.
  /// Of a sharded model: where it can be, as find_blocks() has it, or why nowhere.
  Result<std::vector<host::Block>> blocks = std::vector<host::Block>{};
  bool placed = false;  ///< It could be somewhere once, under this id.

  [[nodiscard]] bool external() const { return config.engine.has_value(); }
  /// Whether the host takes part in serving it.
  [[nodiscard]] bool served_by(HostId host) const;
  /// Any offer of those that do; null: there is none.
  [[nodiscard]] const host::Offer* offer() const;
  /// Why requests for it fail.
  [[nodiscard]] std::optional<Error> failure() const;
  [[nodiscard]] std::uint64_t image_bytes() const;
};

/// Who has which id. A model that is as it was keeps its id over a reload; one that has changed
/// (other weights, other type) gets a new one, so that what runs goes on with the old. Loop thread.
class ModelRegistry {
 public:
  /// What a host calls its models already, as a manager before this one had it: ids that go on to
  /// mean what they do.
  void remember(const std::vector<host::Assignment>& assigned);
  /// Takes over `models` and gives them ids. `hosts`: what those are that have offered them.
  void assign(std::vector<ConfiguredModel> models,
              const std::map<HostId, host::HostFacts>& hosts = {});

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
  [[nodiscard]] const host::Assignment* remembered(const ConfiguredModel& model) const;
  void give_ids(const host::Offer& offer, ConfiguredModel& model);

  std::vector<ConfiguredModel> models_{};
  std::vector<host::Assignment> remembered_{};
  std::uint64_t ids_given_ = 0;
};

}  // namespace heddle::manager
