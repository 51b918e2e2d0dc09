#include "worker/hot_guests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/guests.h"
#include "weave/guest_client.h"
#include "weave/job_area.h"
#include "weave/stream_client.h"

namespace heddle::worker {

namespace {

void add(weave::LayerCounts& sum, const weave::LayerCounts& more) {
  sum.answered += more.answered;
  sum.unanswered += more.unanswered;
  sum.waited += more.waited;
  sum.own += more.own;
}

}  // namespace

Result<std::unique_ptr<weave::CountedHost>> HotGuests::make_client(const Descriptor& area) {
  auto attached = weave::JobArea::attach(area.get());
  if (!attached) {
    return attached.error();
  }
  if (!on_gpu()) {
    return std::unique_ptr<weave::CountedHost>(
        std::make_unique<weave::GuestClient>(std::move(*attached), weave::GuestClient::Options{}));
  }
  auto client = weave::StreamClient::create(std::move(*attached), device_, {});
  if (!client) {
    return client.error();
  }
  return std::unique_ptr<weave::CountedHost>(std::move(*client));
}

void HotGuests::meet(const GuestHost& host) {
  std::unique_ptr<weave::CountedHost> client;
  if (host.area) {
    auto made = make_client(host.area);
    if (made) {
      client = std::move(*made);
    } else {
      log::warning("guests stay without their host", {{"error", made.error().message}});
    }
  }
  engine_.settle();
  engine_.guests().set_host(host.model, client.get());
  forget(host.model);
  hosts_[host.model] = std::move(client);
}

/// What it did stays counted.
void HotGuests::forget(ModelId model) {
  const auto found = hosts_.find(model);
  if (found != hosts_.end() && found->second != nullptr) {
    add(past_, found->second->counts());
  }
  hosts_.erase(model);
}

void HotGuests::map(const GuestMemory& memory) {
  const ModelId model = memory.of.model;
  const auto each = [&]() -> Result<void> {
    std::unique_ptr<LentMemory>& lent = memory_[model];
    const auto count = static_cast<std::uint64_t>(memory.of.device_pages);
    if (lent == nullptr) {
      auto made = LentMemory::create(device_, count);
      if (!made) {
        return made.error();
      }
      lent = std::move(*made);
    }
    for (std::size_t i = 0; i < memory.descriptors.size(); ++i) {
      if (const auto mapped = lent->map(memory.of.pages[i], memory.descriptors[i]); !mapped) {
        return mapped;
      }
    }
    return {};
  };
  if (const Result<void> mapped = each(); !mapped) {
    log::warning("another GPU's memory is not mapped",
                 {{"model", model}, {"error", mapped.error().message}});
  }
  unmap(model, {});
}

std::optional<Error> HotGuests::unable(ModelId model, const std::vector<PageId>& pages) const {
  if (!on_gpu()) {
    return std::nullopt;
  }
  if (!device_.properties().flags) {
    return Error{Code::kFailedPrecondition,
                 device_.properties().name + " has no stream memory operations"};
  }
  const auto found = memory_.find(model);
  const auto is_mapped = [&](PageId page) { return found->second->pages().contains(page); };
  if (found == memory_.end() || !std::ranges::all_of(pages, is_mapped)) {
    return Error{Code::kFailedPrecondition,
                 "not all of " + std::to_string(pages.size()) +
                     " lent pages could be mapped; the device's worker has logged why"};
  }
  return std::nullopt;
}

/// With the last page its addresses go: what comes next may be of another GPU.
void HotGuests::unmap(ModelId model, const std::vector<PageId>& pages) {
  const auto found = memory_.find(model);
  if (found == memory_.end()) {
    return;
  }
  for (const PageId page : pages) {
    if (found->second != nullptr && found->second->pages().contains(page)) {
      found->second->drop(page);
    }
  }
  if (found->second == nullptr || found->second->pages().empty()) {
    memory_.erase(found);
  }
}

void HotGuests::take(ModelId model, const std::vector<PageId>& pages) {
  const auto found = memory_.find(model);
  std::byte* const memory = found == memory_.end() ? nullptr : found->second->base();
  const Result<void> lent = engine_.guests().lend(model, pages, memory);
  HEDDLE_CHECK(lent.has_value());
}

core::GuestsReturned HotGuests::give_back(ModelId model, std::int64_t count) {
  engine_.settle();
  core::GuestsReturned returned{.model = model, .pages = engine_.guests().give_back(model, count)};
  HEDDLE_CHECK(std::ssize(returned.pages) == count);  // The core has counted them.
  unmap(model, returned.pages);
  return returned;
}

std::int64_t HotGuests::move_out(core::SequenceId sequence, std::int64_t tokens) {
  engine_.settle();
  engine::Guests guests = engine_.guests();
  const Result<std::int64_t> moved = guests.move_out(sequence, tokens);
  return moved ? *moved : guests.tokens(sequence);
}

std::int64_t HotGuests::move_home(core::SequenceId sequence) {
  engine_.settle();
  engine::Guests guests = engine_.guests();
  static_cast<void>(guests.move_home(sequence));  // Else it stays, and its tokens say so.
  return guests.tokens(sequence);
}

std::int64_t HotGuests::used_pages(ModelId model) const {
  return engine_.guests().used_pages(model);
}

std::int64_t HotGuests::tokens(core::SequenceId sequence) const {
  return engine_.guests().tokens(sequence);
}

weave::LayerCounts HotGuests::counts() const {
  weave::LayerCounts counts = past_;
  for (const auto& [model, host] : hosts_) {
    if (host != nullptr) {
      add(counts, host->counts());
    }
  }
  return counts;
}

HotGuests::Times HotGuests::times() const {
  const weave::LayerCounts all = counts();
  return {.own = all.own, .waited = all.waited};
}

rpc::WorkerStats HotGuests::stats() const {
  const weave::LayerCounts all = counts();
  return {
      .guest_wait = all.waited, .guest_layers = all.answered, .guest_layers_alone = all.unanswered};
}

}  // namespace heddle::worker
