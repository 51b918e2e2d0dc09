#include "core/manager/kv_limits.h"

#include <cstdlib>
#include <string>

#include "core/manager/index.h"

namespace heddle::core::manager {
namespace {

/// A host that had no more pages for KV of an engine is not asked again before.
constexpr Duration kKvRest = std::chrono::seconds(1);
/// People are told where a limit has changed by a part in so many of its device.
constexpr std::int64_t kKvNews = 8;

}  // namespace

void KvLimits::heard(const EngineKv& said) {
  std::optional<ElasticKv>& kv = instance(said.device, said.model).elastic;
  if (!kv) {
    kv = ElasticKv{.told = said.wanted_pages, .noted = said.wanted_pages};
  } else if (said.wanted_pages < kv->told && said.wanted_pages < kv->said.wanted_pages) {
    // Its host had heard, and did not find as much.
    kv->told = said.wanted_pages;
    kv->told_again_at = state_.now + kKvRest;
  }
  kv->said = said;
  reindex(state_, said.device, said.model);
}

void KvLimits::forget(DeviceId device, ModelId model) {
  instance(device, model).elastic.reset();
  reindex(state_, device, model);
}

void KvLimits::limit(DeviceId device_id,
                     ModelId model,
                     std::int64_t pages,
                     std::optional<ModelId> for_model) {
  const DeviceState& device = state_.devices.at(device_id);
  ElasticKv& kv = instance(device_id, model).elastic.value();
  kv.told = pages;
  out_.act(LimitKv{.device = device_id,
                   .model = model,
                   .basis = {.epoch = device.epoch, .version = device.version},
                   .pages = pages});
  if (std::abs(pages - kv.noted) * kKvNews >= device.config.pages) {
    out_.note(pages > kv.noted ? DecisionKind::kLend : DecisionKind::kRecall,
              model,
              device_id,
              "its KV may have " + std::to_string(pages) + " pages instead of " +
                  std::to_string(kv.noted) + "; it uses " + std::to_string(kv.said.used_pages),
              for_model);
    kv.noted = pages;
  }
}

}  // namespace heddle::core::manager
