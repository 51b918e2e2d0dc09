#include "gateway/idle_models.h"

#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "core/idle.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

std::optional<Duration> time_to_live(const CatalogModel& model) {
  const Duration asked = model.keep_alive.value_or(model.config.ttl);
  const bool stays =
      model.config.pin || (model.keep_alive ? asked == Duration::max() : asked == Duration{});
  return stays ? std::nullopt : std::optional(asked);
}

std::vector<ModelId> expired_models(const std::vector<core::ModelStatus>& statuses,
                                    const Catalog& catalog,
                                    Instant now) {
  std::vector<ModelId> expired;
  for (const core::ModelStatus& status : statuses) {
    const std::shared_ptr<CatalogModel> model = catalog.find(status.id);
    const std::optional<Duration> limit = model ? time_to_live(*model) : std::nullopt;
    if (limit && model->queue.size() == 0 && core::idle_for(status, *limit, now)) {
      expired.push_back(status.id);
    }
  }
  return expired;
}

namespace {

/// What a request said about its model holds until the model is gone.
void forget_keep_alive(const Context& context) {
  for (const core::ModelStatus& status : context.serving->models()) {
    const std::shared_ptr<CatalogModel> model = context.catalog.find(status.id);
    if (model && status.residency == core::Residency::kAbsent && model->queue.size() == 0) {
      model->keep_alive.reset();
    }
  }
}

}  // namespace

Task<void> unload_expired(std::shared_ptr<Context> context) {
  asio::steady_timer timer(context->loop);
  while (context->serving != nullptr) {
    for (const ModelId id :
         expired_models(context->serving->models(), context->catalog, context->now())) {
      log::info("model idle longer than it may be, unloads",
                {{"model", context->catalog.find(id)->config.id}});
      // Whether it worked shows in the next look.
      context->serving->unload(id, core::EvictionReason::kIdle, [](const Result<void>&) {});
    }
    forget_keep_alive(*context);
    timer.expires_after(core::kIdleLookInterval);
    co_await timer.async_wait(kAwait);
  }
}

}  // namespace heddle::gateway
