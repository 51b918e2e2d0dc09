#include "worker/guest_hosts.h"

#include <functional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "ops/context.h"

namespace heddle::worker {
namespace {

/// Layers of a step come this soon one after the other; then the thread sleeps.
constexpr Duration kLayerLook = std::chrono::microseconds(50);
/// Between looks whether the pair has ended.
constexpr Duration kEndLook = std::chrono::seconds(1);

void serve_until_closed(ModelId model, const std::function<Result<bool>()>& serve) {
  for (;;) {
    if (const Result<bool> served = serve(); !served) {
      if (served.error().code != Code::kUnavailable) {  // Else the pair has ended.
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

Result<void> GuestHosts::prepare_memory() {
  if (gpu_ == nullptr) {
    return Error{Code::kFailedPrecondition, "share pages: a part of the host shares its arena"};
  }
  if (memory_ == nullptr) {
    auto made = LentMemory::create(*gpu_, gpu_->properties().page_count);
    if (!made) {
      return made.error();
    }
    memory_ = std::move(*made);
  }
  return {};
}

Result<std::vector<Descriptor>> GuestHosts::share(ModelId model, const std::vector<PageId>& pages) {
  if (const auto prepared = prepare_memory(); !prepared) {
    return prepared.error();
  }
  std::vector<Descriptor> descriptors;
  for (const PageId page : pages) {
    auto made = memory_->make(page);
    if (!made) {
      for (std::size_t i = 0; i < descriptors.size(); ++i) {
        memory_->drop(pages[i]);
      }
      return made.error();
    }
    descriptors.push_back(std::move(*made));
  }
  mapped_[model].insert(pages.begin(), pages.end());
  return descriptors;
}

Result<void> GuestHosts::share_again(ModelId model,
                                     const std::vector<PageId>& pages,
                                     const std::vector<Descriptor>& descriptors) {
  HEDDLE_CHECK(pages.size() == descriptors.size());
  Result<void> done = prepare_memory();
  for (std::size_t i = 0; done && i < pages.size(); ++i) {
    done = memory_->map(pages[i], descriptors[i]);
    if (done) {
      mapped_[model].insert(pages[i]);
    }
  }
  return done;
}

/// Of what is lent, what a GPU has mapped; a table that names another page is refused.
std::vector<PageId> GuestHosts::usable(ModelId model, const std::vector<PageId>& lent) const {
  if (gpu_ == nullptr) {
    return lent;
  }
  std::vector<PageId> usable;
  const auto mapped = mapped_.find(model);
  for (const PageId page : lent) {
    if (mapped != mapped_.end() && mapped->second.contains(page)) {
      usable.push_back(page);
    }
  }
  return usable;
}

Result<void> GuestHosts::make_server(Served& served, const std::vector<PageId>& lent) const {
  const auto kind = gpu_ == nullptr ? device::Kind::kCpu : device::Kind::kCuda;
  const Result<std::string> name = ops::kernels_name(kind);
  if (!name) {
    return name.error();
  }
  if (gpu_ == nullptr) {
    auto server = weave::GuestServer::create(served.area, pages_, page_bytes_, *name);
    if (!server) {
      return server.error();
    }
    served.server = std::move(*server);
    served.server->lend(lent);
    served.server->set_pace(context_ / served.area->geometry().layers);
    return {};
  }
  if (memory_ == nullptr) {
    return Error{Code::kFailedPrecondition, "no page of the model has been shared"};
  }
  auto server = weave::StreamServer::create(served.area,
                                            {.device = *gpu_,
                                             .kernels = *ops::kernels_for(kind),
                                             .kernels_name = *name,
                                             .pages = memory_->base(),
                                             .page_bytes = page_bytes_});
  if (!server) {
    return server.error();
  }
  served.on_stream = std::move(*server);
  served.on_stream->lend(lent);
  return {};
}

Result<Thread> GuestHosts::start(ModelId model, const Served& served) {
  std::function<Result<bool>()> serve = [server = served.on_stream.get()] {
    return server->serve(kEndLook);
  };
  if (gpu_ == nullptr) {
    serve = [this, server = served.server.get()] {
      const Duration before = server->busy();
      const Result<bool> done = server->serve(kLayerLook, kEndLook);
      time_.add(server->busy() - before);
      return done;
    };
  }
  return Thread::start({.name = "guests"},
                       [model, serve = std::move(serve)] { serve_until_closed(model, serve); });
}

Result<void> GuestHosts::begin(ModelId model,
                               const Descriptor& area,
                               const std::vector<PageId>& lent) {
  auto served = std::make_unique<Served>();
  auto attached = weave::JobArea::attach(area.get());
  if (!attached) {
    return attached.error();
  }
  served->area = std::move(*attached);
  if (const auto made = make_server(*served, usable(model, lent)); !made) {
    served->area->close();  // The hot side need not wait to learn that.
    return made;
  }
  auto thread = start(model, *served);
  if (!thread) {
    served->area->close();
    return thread.error();
  }
  served->thread = std::move(*thread);
  served_[model] = std::move(served);
  return {};
}

void GuestHosts::serve(ModelId model, const Descriptor& area, const std::vector<PageId>& lent) {
  end(model);
  if (const Result<void> begun = begin(model, area, lent); !begun) {
    log::warning("guests are not served", {{"model", model}, {"error", begun.error().message}});
  }
}

void GuestHosts::lend(ModelId model, const std::vector<PageId>& lent) {
  const auto found = served_.find(model);
  if (lent.empty()) {
    end(model);
  } else if (found != served_.end()) {
    const std::vector<PageId> pages = usable(model, lent);
    if (gpu_ == nullptr) {
      found->second->server->lend(pages);
    } else {
      found->second->on_stream->lend(pages);
    }
  }
  unmap(model, lent);
}

void GuestHosts::unmap(ModelId model, const std::vector<PageId>& kept) {
  const auto mapped = mapped_.find(model);
  if (mapped == mapped_.end()) {
    return;
  }
  const std::set<PageId> keep(kept.begin(), kept.end());
  std::erase_if(mapped->second, [&](PageId page) {
    const bool gone = !keep.contains(page);
    if (gone) {
      memory_->drop(page);
    }
    return gone;
  });
  if (mapped->second.empty()) {
    mapped_.erase(mapped);
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
