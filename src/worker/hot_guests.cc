#include "worker/hot_guests.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/guests.h"
#include "weave/job_area.h"

namespace heddle::worker {

void HotGuests::meet(const GuestHost& host) {
  std::unique_ptr<weave::GuestClient> client;
  if (host.area) {
    auto area = weave::JobArea::attach(host.area.get());
    if (area) {
      client =
          std::make_unique<weave::GuestClient>(std::move(*area), weave::GuestClient::Options{});
    } else {
      log::warning("guests stay without their host", {{"error", area.error().message}});
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
    past_own_ += found->second->own();
    past_.guest_wait += found->second->waited();
    past_.guest_layers += found->second->answered();
    past_.guest_layers_alone += found->second->unanswered();
  }
  hosts_.erase(model);
}

void HotGuests::take(ModelId model, const std::vector<PageId>& pages) {
  HEDDLE_CHECK(engine_.guests().lend(model, pages).has_value());  // Nobody lends to a GPU.
}

core::GuestsReturned HotGuests::give_back(ModelId model, std::int64_t count) {
  engine_.settle();
  core::GuestsReturned returned{.model = model, .pages = engine_.guests().give_back(model, count)};
  HEDDLE_CHECK(std::ssize(returned.pages) == count);  // The core has counted them.
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

HotGuests::Times HotGuests::times() const {
  Times times{.own = past_own_, .waited = past_.guest_wait};
  for (const auto& [model, client] : hosts_) {
    if (client != nullptr) {
      times.own += client->own();
      times.waited += client->waited();
    }
  }
  return times;
}

rpc::WorkerStats HotGuests::stats() const {
  rpc::WorkerStats stats = past_;
  for (const auto& [model, client] : hosts_) {
    if (client != nullptr) {
      stats.guest_wait += client->waited();
      stats.guest_layers += client->answered();
      stats.guest_layers_alone += client->unanswered();
    }
  }
  return stats;
}

}  // namespace heddle::worker
