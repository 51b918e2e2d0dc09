#include <algorithm>
#include <optional>
#include <vector>

#include "base/units.h"
#include "core/manager/index.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "policy/kv_shares.h"

namespace heddle::core::manager {
namespace {

/// An engine whose tokens may take this long on average weighs 1.
constexpr double kUsualTpot = 0.05;
constexpr double kWeightMost = 8;
/// What models of ours on the device keep of what is free: a part in so many.
constexpr std::int64_t kOwnPart = 8;
/// A limit changes by a part in so many of what there is, at least: each change is a message.
constexpr std::int64_t kStep = 32;

/// An elastic engine that runs, as it shares.
struct Sharer {
  ModelId model{};
  const Instance* instance = nullptr;
  policy::KvUser user{};
};

double weight_of(const ModelState& model) {
  const auto& tpot = model.config.slo.tpot;
  return tpot ? std::clamp(kUsualTpot / to_seconds(*tpot), 1 / kWeightMost, kWeightMost) : 1.0;
}

std::vector<Sharer> sharers_on(const State& state, const DeviceState& device) {
  std::vector<Sharer> sharers;
  for (const auto& [id, instance] : device.instances) {
    if (instance.elastic && instance.is<Serving>() && !instance.elastic->said.deaf) {
      const EngineKv& said = instance.elastic->said;
      sharers.push_back({.model = id,
                         .instance = &instance,
                         .user = {.least = said.least_pages,
                                  .used = said.used_pages,
                                  .busy = !instance.in_flight.empty(),
                                  .weight = weight_of(state.models.at(id))}});
    }
  }
  return sharers;
}

/// What is left for their KV: all that nobody else has, or is about to have.
std::int64_t left_for(const State& state,
                      const DeviceState& device,
                      const std::vector<Sharer>& sharers) {
  const bool ours = std::ranges::any_of(device.instances, [&](const auto& entry) {
    return !state.models.at(entry.first).external();
  });
  std::int64_t free = free_pages(state, device, device.workspace) - device.workspace;
  free -= device.shortage.own_pages;
  free -= ours && free > 0 ? free / kOwnPart : 0;
  for (const Sharer& sharer : sharers) {
    free += pages_of(state, device, sharer.model, device.workspace) -
            sharer.instance->elastic->said.fixed_pages;
  }
  return std::max<std::int64_t>(free, 0);
}

/// Who comes, and waits for memory; else whose sequences do.
std::optional<ModelId> who_wants(const DeviceState& device) {
  for (const auto& [id, instance] : device.instances) {
    if (instance.is<Loading>()) {
      return id;
    }
  }
  return device.shortage.own_pages > 0 ? std::optional(device.shortage.model) : std::nullopt;
}

void share_on(const Parts& core, const DeviceState& device) {
  const std::vector<Sharer> sharers = sharers_on(core.state, device);
  std::vector<policy::KvUser> users;
  for (const Sharer& sharer : sharers) {
    users.push_back(sharer.user);
  }
  const std::int64_t capacity = left_for(core.state, device, sharers);
  const std::vector<policy::KvShare> shares = policy::share_kv(users, capacity);
  const std::optional<ModelId> wanted = who_wants(device);
  std::int64_t lacking = 0;
  std::int64_t lacks = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    lacking += shares[i].lacks > 0 ? 1 : 0;
    lacks += shares[i].lacks;
    most = shares[i].lacks > shares[most].lacks ? i : most;
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const ElasticKv& kv = *sharers[i].instance->elastic;
    // One that answers requests falls to its share as these end, unless somebody is to come.
    const bool gently = users[i].busy && !wanted;
    const std::int64_t pages =
        gently ? std::max(shares[i].pages, std::min(users[i].used, kv.told)) : shares[i].pages;
    const std::int64_t change = std::abs(pages - kv.told);
    const bool matters = change * kStep >= capacity || pages == users[i].least || wanted ||
                         (pages < kv.told && lacking > 0);
    if (change == 0 || !matters) {
      continue;
    }
    if (pages > kv.told && core.state.now < kv.told_again_at) {
      core.out.wake_by(kv.told_again_at);
      continue;
    }
    const bool gives = pages < kv.told;
    const std::optional<ModelId> lacker =
        lacking > 0 ? std::optional(sharers[most].model) : std::nullopt;
    core.kv_limits.limit(device.config.id,
                         sharers[i].model,
                         pages,
                         gives ? (wanted ? wanted : lacker) : std::nullopt);
  }
  core.shortages.engines_lack(
      device.config.id, lacking, lacks, lacking > 0 ? sharers[most].model : device.shortage.engine);
}

}  // namespace

void share_kv(const Parts& core) {
  if (core.state.drain_deadline) {
    return;
  }
  each(core.state.index.elastic, [&](DeviceId id) {
    const DeviceState& device = core.state.devices.at(id);
    if (device.up) {
      share_on(core, device);
    }
  });
}

}  // namespace heddle::core::manager
