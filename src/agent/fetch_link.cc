#include "agent/fetch_link.h"

#include <algorithm>

#include "base/clock.h"

namespace heddle::agent {
namespace {

/// Time that nobody used counts for so long.
constexpr Duration kCredit = std::chrono::milliseconds(100);

}  // namespace

FetchLink::Member FetchLink::join(bool early, Instant now) {
  const std::lock_guard lock(mutex_);
  const Member member(++joined_);
  members_[member] = {
      .id = member,
      .link_class = early ? policy::LinkClass::kPrewarm : policy::LinkClass::kActivation,
      .deadline = now};
  return member;
}

void FetchLink::hasten(Member member, Instant now) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(member);
  if (found != members_.end() && found->second.link_class == policy::LinkClass::kPrewarm) {
    found->second.link_class = policy::LinkClass::kActivation;
    found->second.deadline = now;
    changed_.notify_all();
  }
}

void FetchLink::leave(Member member) {
  const std::lock_guard lock(mutex_);
  members_.erase(member);
  changed_.notify_all();
}

bool FetchLink::must_wait(Member member) const {
  const auto found = members_.find(member);
  return found != members_.end() && found->second.link_class == policy::LinkClass::kPrewarm &&
         std::ranges::any_of(members_, [](const auto& other) {
           return other.second.link_class == policy::LinkClass::kActivation;
         });
}

void FetchLink::turn(Member member, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  (void)changed_.wait(lock, stop, [&] { return !must_wait(member); });
}

/// Of those that wait for time on the link.
bool FetchLink::is_first(Member member) const {
  const auto mine = members_.find(member);
  return mine == members_.end() || std::ranges::all_of(waiting_, [&](const auto& other) {
           const auto theirs = members_.find(other.first);
           return other.second == 0 || theirs == members_.end() ||
                  !policy::sends_before(theirs->second, mine->second);
         });
}

void FetchLink::took(Member member, std::uint64_t bytes, const std::stop_token& stop) {
  if (rate_ == 0) {
    return;
  }
  const Duration cost = from_seconds(static_cast<double>(bytes) / static_cast<double>(rate_));
  std::unique_lock lock(mutex_);
  ++waiting_[member];
  while (!stop.stop_requested()) {
    const Instant now = steady_now();
    if (is_first(member) && paid_until_ <= now) {
      paid_until_ = std::max(paid_until_, now - kCredit) + cost;
      break;
    }
    const Duration pause =
        paid_until_ > now ? paid_until_ - now : Duration(std::chrono::milliseconds(20));
    (void)changed_.wait_for(lock, stop, pause, [] { return false; });
  }
  if (--waiting_[member] == 0) {
    waiting_.erase(member);
  }
  changed_.notify_all();
}

}  // namespace heddle::agent
