#include "worker/guest_hosts.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "ops/context.h"

namespace heddle::worker {
namespace {

/// Layers of a step come this soon one after the other; then the thread sleeps.
constexpr Duration kLayerLook = std::chrono::microseconds(50);
/// Between looks whether the pair has ended.
constexpr Duration kEndLook = std::chrono::seconds(1);

void serve_until_closed(weave::GuestServer& server, ModelId model, GuestTime& time) {
  for (;;) {
    const Duration before = server.busy();
    const Result<bool> served = server.serve(kLayerLook, kEndLook);
    time.add(server.busy() - before);
    if (!served) {
      if (served.error().code == Code::kInvalidArgument) {
        log::warning("guests are not served any more",
                     {{"model", model}, {"error", served.error().message}});
      }
      return;
    }
  }
}

}  // namespace

GuestHosts::~GuestHosts() {
  while (!served_.empty()) {
    end(served_.begin()->first);
  }
}

void GuestHosts::serve(ModelId model, const Descriptor& area, const std::vector<PageId>& lent) {
  end(model);
  const auto begin = [&]() -> Result<void> {
    auto served = std::make_unique<Served>();
    const Result<std::string> kernels = ops::kernels_name(device::Kind::kCpu);
    if (!kernels) {
      return kernels.error();
    }
    auto attached = weave::JobArea::attach(area.get());
    if (!attached) {
      return attached.error();
    }
    served->area = std::move(*attached);
    auto server = weave::GuestServer::create(served->area, pages_, page_bytes_, *kernels);
    if (!server) {
      served->area->close();  // The hot side need not wait to learn that.
      return server.error();
    }
    served->server = std::move(*server);
    served->server->lend(lent);
    served->server->set_pace(context_ / served->area->geometry().layers);
    auto thread = Thread::start({.name = "guests"}, [this, server = served->server.get(), model] {
      serve_until_closed(*server, model, time_);
    });
    if (!thread) {
      served->area->close();
      return thread.error();
    }
    served->thread = std::move(*thread);
    served_[model] = std::move(served);
    return {};
  };
  if (const Result<void> begun = begin(); !begun) {
    log::warning("guests are not served", {{"model", model}, {"error", begun.error().message}});
  }
}

void GuestHosts::lend(ModelId model, const std::vector<PageId>& lent) {
  const auto found = served_.find(model);
  if (lent.empty()) {
    end(model);
  } else if (found != served_.end()) {
    found->second->server->lend(lent);
  }
}

void GuestHosts::end(ModelId model) {
  const auto found = served_.find(model);
  if (found != served_.end()) {
    found->second->area->close();
    served_.erase(found);
  }
}

}  // namespace heddle::worker
