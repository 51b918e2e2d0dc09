#include "sim/planes/reservations.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::sim {
namespace {

using Free = std::map<DeviceId, std::int64_t>;

bool fits(const Reservation& reservation, const Free& free) {
  return std::all_of(reservation.pages.begin(), reservation.pages.end(), [&](const auto& want) {
    return want.pages <= free.at(want.device);
  });
}

void change(Free& free, const Reservation& reservation, std::int64_t sign) {
  for (const policy::DevicePages& want : reservation.pages) {
    free.at(want.device) += sign * want.pages;
  }
}

bool share_a_device(const Reservation& a, const Reservation& b) {
  return std::any_of(a.pages.begin(), a.pages.end(), [&](const policy::DevicePages& x) {
    return std::any_of(b.pages.begin(), b.pages.end(), [&](const policy::DevicePages& y) {
      return x.device == y.device;
    });
  });
}

}  // namespace

Reservations::Reservations(std::span<const policy::DevicePages> capacity,
                           std::int64_t margin_percent) {
  HEDDLE_CHECK(margin_percent >= 0 && margin_percent < 100);
  for (const policy::DevicePages& one : capacity) {
    HEDDLE_CHECK(one.pages >= 0);
    devices_[one.device] = {.capacity = one.pages,
                            .usable = one.pages - one.pages * margin_percent / 100};
  }
}

const Reservations::Device& Reservations::device(DeviceId id) const {
  const auto found = devices_.find(id);
  HEDDLE_CHECK(found != devices_.end());
  return found->second;
}

bool Reservations::possible(const Reservation& reservation) const {
  return std::all_of(reservation.pages.begin(), reservation.pages.end(), [&](const auto& want) {
    const auto found = devices_.find(want.device);
    return found != devices_.end() && want.pages <= found->second.usable;
  });
}

void Reservations::ask(Reservation reservation) {
  HEDDLE_CHECK(!reservation.pages.empty() && possible(reservation));
  HEDDLE_CHECK(!state(reservation.id));
  pending_.push_back(std::move(reservation));
}

std::int64_t Reservations::free_pages(DeviceId id) const {
  const Device& known = device(id);
  return std::max<std::int64_t>(0, known.usable - known.taken - known.unknown);
}

Reservations::Free Reservations::free_now() const {
  Free free;
  for (const auto& [id, known] : devices_) {
    free.emplace(id, known.usable - known.taken - known.unknown);
  }
  return free;
}

/// When the head can start by what is known of the ends of others, and the pages that are free
/// then without it. nullopt: nobody knows.
std::optional<std::pair<Instant, Free>> Reservations::start_of(const Reservation& head) const {
  std::vector<std::pair<Instant, const Reservation*>> ends;
  for (const auto& [id, holder] : holders_) {
    if (holder.ends) {
      ends.emplace_back(*holder.ends, &holder.reservation);
    }
  }
  std::sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->id) < std::pair(b.first, b.second->id);
  });
  Free free = free_now();
  for (const auto& [end, reservation] : ends) {
    change(free, *reservation, 1);
    if (fits(head, free)) {
      return std::pair(end, std::move(free));
    }
  }
  return std::nullopt;
}

void Reservations::hold(Reservation reservation, Instant now) {
  for (const policy::DevicePages& want : reservation.pages) {
    devices_.at(want.device).taken += want.pages;
  }
  Holder holder{.reservation = std::move(reservation)};
  if (holder.reservation.lasts) {
    holder.ends = now + *holder.reservation.lasts;
  }
  const ReservationId id = holder.reservation.id;
  holders_.emplace(id, std::move(holder));
}

std::vector<ReservationId> Reservations::grant(Instant now) {
  std::vector<ReservationId> granted;
  Free free = free_now();
  std::size_t at = 0;
  while (at < pending_.size()) {
    Reservation& next = pending_[at];
    bool allowed = fits(next, free);
    if (allowed && at > 0 && share_a_device(next, pending_.front())) {
      auto start = start_of(pending_.front());
      allowed = start && next.lasts && now + *next.lasts <= start->first;
      if (start && !allowed) {
        change(start->second, next, -1);
        allowed = fits(pending_.front(), start->second);
      }
    }
    if (!allowed) {
      ++at;
      continue;
    }
    granted.push_back(next.id);
    change(free, next, -1);
    hold(std::move(next), now);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return granted;
}

void Reservations::set_used(ReservationId id) {
  const auto found = holders_.find(id);
  HEDDLE_CHECK(found != holders_.end());
  found->second.state = ReservationState::kUsed;
}

void Reservations::release(ReservationId id) {
  const auto found = holders_.find(id);
  if (found == holders_.end()) {
    const auto erased = std::erase_if(pending_, [&](const Reservation& r) { return r.id == id; });
    HEDDLE_CHECK(erased == 1);
    return;
  }
  for (const policy::DevicePages& held : found->second.reservation.pages) {
    devices_.at(held.device).taken -= held.pages;
  }
  holders_.erase(found);
}

void Reservations::measure(DeviceId id, std::int64_t free_pages) {
  const Device& known = device(id);
  devices_.at(id).unknown = std::max<std::int64_t>(0, known.capacity - known.taken - free_pages);
}

std::optional<ReservationState> Reservations::state(ReservationId id) const {
  const auto found = holders_.find(id);
  if (found != holders_.end()) {
    return found->second.state;
  }
  const auto is_it = [&](const Reservation& pending) { return pending.id == id; };
  return std::any_of(pending_.begin(), pending_.end(), is_it)
             ? std::optional(ReservationState::kPending)
             : std::nullopt;
}

std::optional<ReservationId> Reservations::head() const {
  return pending_.empty() ? std::nullopt : std::optional(pending_.front().id);
}

std::vector<policy::DevicePages> Reservations::missing(ReservationId id) const {
  std::vector<policy::DevicePages> result;
  for (const Reservation& pending : pending_) {
    for (const policy::DevicePages& want : pending.pages) {
      if (pending.id == id && want.pages > free_pages(want.device)) {
        result.push_back({want.device, want.pages - free_pages(want.device)});
      }
    }
  }
  return result;
}

}  // namespace heddle::sim
