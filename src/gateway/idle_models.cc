#include "gateway/idle_models.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr auto kLookInterval = std::chrono::milliseconds(500);

}  // namespace

std::vector<ModelId> expired_models(const std::vector<core::ModelStatus>& statuses,
                                    const Catalog& catalog,
                                    Instant now) {
  std::vector<ModelId> expired;
  for (const core::ModelStatus& status : statuses) {
    const std::shared_ptr<CatalogModel> model = catalog.find(status.id);
    const bool here =
        status.residency == core::Residency::kWarm || status.residency == core::Residency::kServing;
    const bool used = status.requests_running > 0 || status.requests_waiting > 0;
    if (model && here && !used && model->in_flight == 0 && !model->config.pin &&
        model->config.ttl > Duration{} && now - status.last_used >= model->config.ttl) {
      expired.push_back(status.id);
    }
  }
  return expired;
}

asio::awaitable<void> unload_expired(std::shared_ptr<Context> context) {
  asio::steady_timer timer(context->loop);
  while (context->serving != nullptr) {
    for (const ModelId id :
         expired_models(context->serving->models(), context->catalog, context->now())) {
      log::info("model idle longer than its ttl, unloads",
                {{"model", context->catalog.find(id)->config.id}});
      // Whether it worked shows in the next look.
      context->serving->unload(id, core::EvictionReason::kIdle, [](const Result<void>&) {});
    }
    timer.expires_after(kLookInterval);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace heddle::gateway
