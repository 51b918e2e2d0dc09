#include "agent/fetch_link.h"

#include <algorithm>

namespace heddle::agent {

FetchLink::Member FetchLink::join(bool early) {
  const std::lock_guard lock(mutex_);
  const Member member(++joined_);
  members_[member] = early ? policy::LinkClass::kPrewarm : policy::LinkClass::kActivation;
  return member;
}

void FetchLink::prioritise(Member member) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(member);
  if (found != members_.end()) {
    found->second = policy::LinkClass::kActivation;
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
  return found != members_.end() && std::ranges::any_of(members_, [&](const auto& other) {
           return other.second < found->second;
         });
}

void FetchLink::turn(Member member, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  (void)changed_.wait(lock, stop, [&] { return !must_wait(member); });
}

}  // namespace heddle::agent
