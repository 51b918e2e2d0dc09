#include "agent/fetch_link.h"

#include <algorithm>

#include "base/clock.h"

namespace heddle::agent {
namespace {

/// What nobody took in so long is not made up for.
constexpr Duration kCredit = std::chrono::milliseconds(250);
/// So far ahead of the link bytes pass, so that few of them wait one by one.
constexpr Duration kAhead = std::chrono::milliseconds(2);
/// Whoever has waited so long goes next: a source that nothing is taken from hangs up.
constexpr Duration kPatience = std::chrono::seconds(2);
/// Deadlines pass, and what a fetch can use is measured, while one waits.
constexpr Duration kLookAgain = std::chrono::milliseconds(100);

}  // namespace

FetchLink::Member FetchLink::join(policy::FetchUrgency urgency) {
  const std::lock_guard lock(mutex_);
  const Member member(++joined_);
  shares_.join(member, urgency);
  return member;
}

void FetchLink::prioritise(Member member) {
  const std::lock_guard lock(mutex_);
  shares_.prioritise(member);
  change();
}

void FetchLink::leave(Member member) {
  const std::lock_guard lock(mutex_);
  shares_.leave(member);
  change();
}

void FetchLink::change() {
  ++changes_;
  changed_.notify_all();
}

/// Until something changes, at most so long.
void FetchLink::wait(std::unique_lock<std::mutex>& lock,
                     const std::stop_token& stop,
                     Duration most) {
  (void)changed_.wait_for(
      lock, stop, most, [this, before = changes_] { return changes_ != before; });
}

bool FetchLink::turn(Member member, const std::stop_token& stop, Duration most) {
  std::unique_lock lock(mutex_);
  const Instant began = steady_now();
  for (Instant now = began; !shares_.may_ask(member, now); now = steady_now()) {
    if (stop.stop_requested() || now - began >= most) {
      return false;
    }
    shares_.held(member);
    wait(lock, stop, kLookAgain);
  }
  return true;
}

bool FetchLink::goes_before(const Waiting& a, const Waiting& b, Instant now) const {
  const bool a_aged = now - a.since > kPatience;
  const bool b_aged = now - b.since > kPatience;
  return a_aged != b_aged ? a_aged : shares_.goes_before(a.member, b.member, now);
}

std::vector<FetchLink::Member> FetchLink::ahead_of(std::uint64_t ticket, Instant now) const {
  const Waiting& mine = waiting_.at(ticket);
  std::vector<Member> ahead;
  for (const auto& [other, waiting] : waiting_) {
    const bool is_ahead =
        other < ticket ? !goes_before(mine, waiting, now) : goes_before(waiting, mine, now);
    if (other != ticket && is_ahead) {
      ahead.push_back(waiting.member);
    }
  }
  return ahead;
}

void FetchLink::took(Member member, std::uint64_t bytes, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  Instant now = steady_now();
  if (bytes_per_second_ > 0) {
    const std::uint64_t ticket = ++tickets_;
    waiting_[ticket] = {.member = member, .since = now};
    while (!stop.stop_requested()) {
      const std::vector<Member> ahead = ahead_of(ticket, now);
      if (ahead.empty() && paid_ <= now + kAhead) {
        break;
      }
      if (std::ranges::any_of(ahead, [&](Member other) { return other != member; })) {
        shares_.held(member);
      }
      wait(lock, stop, ahead.empty() ? paid_ - now : kLookAgain);
      now = steady_now();
    }
    waiting_.erase(ticket);
    paid_ = std::max(paid_, now - kCredit) +
            from_seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    if (!waiting_.empty()) {
      change();
    }
  }
  shares_.took(member, bytes, now);
}

}  // namespace heddle::agent
