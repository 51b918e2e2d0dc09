#include "twin/fetch_link.h"

#include <algorithm>
#include <utility>

namespace heddle::twin {

FetchLink::Member FetchLink::join(policy::FetchUrgency urgency) {
  const Member member(++joined_);
  shares_.join(member, urgency);
  return member;
}

void FetchLink::leave(Member member) {
  shares_.leave(member);
  std::erase_if(waiting_, [member](const Waiting& each) { return each.member == member; });
}

void FetchLink::ask(Member member, std::function<void()> then) {
  if (shares_.may_ask(member, agenda_.now())) {
    then();
    return;
  }
  shares_.held(member);
  agenda_.after(times_.look, [this, member, then = std::move(then)] { ask(member, then); });
}

void FetchLink::take(Member member, std::uint64_t bytes, std::function<void()> then) {
  if (rate_ == 0) {
    shares_.took(member, bytes, agenda_.now());
    then();
    return;
  }
  waiting_.push_back(
      {.member = member, .bytes = bytes, .since = agenda_.now(), .then = std::move(then)});
  pass_on_at(std::max(agenda_.now(), paid_ - times_.ahead));
}

bool FetchLink::goes_before(const Waiting& a, const Waiting& b) const {
  const bool a_aged = agenda_.now() - a.since > times_.patience;
  const bool b_aged = agenda_.now() - b.since > times_.patience;
  return a_aged != b_aged ? a_aged : shares_.goes_before(a.member, b.member, agenda_.now());
}

void FetchLink::pass_on_at(Instant when) {
  if (!std::exchange(awaits_, true)) {
    agenda_.at(when, [this] {
      awaits_ = false;
      pass_on();
    });
  }
}

/// Who goes first has its bytes, and the link is as far as that takes.
void FetchLink::pass_on() {
  const Instant now = agenda_.now();
  if (waiting_.empty()) {
    return;
  }
  if (paid_ > now + times_.ahead) {
    pass_on_at(paid_ - times_.ahead);
    return;
  }
  const auto first =
      std::min_element(waiting_.begin(), waiting_.end(), [this](const auto& a, const auto& b) {
        return goes_before(a, b);
      });
  const Waiting next = std::move(*first);
  waiting_.erase(first);
  for (const Waiting& other : waiting_) {
    shares_.held(other.member);
  }
  paid_ = std::max(paid_, now - times_.credit) +
          from_seconds(static_cast<double>(next.bytes) / static_cast<double>(rate_));
  shares_.took(next.member, next.bytes, now);
  if (!waiting_.empty()) {
    pass_on_at(std::max(now, paid_ - times_.ahead));
  }
  next.then();
}

}  // namespace heddle::twin
