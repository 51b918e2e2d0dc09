#include "policy/link_shares.h"

#include <tuple>
#include <vector>

namespace heddle::policy {
namespace {

constexpr LinkId kLink{1};
/// What a fetch can use is told from what came of it in so long.
constexpr Duration kWindow = std::chrono::milliseconds(250);
/// Whoever has so much of the link could use all of it.
constexpr double kAllPart = 0.8;
/// Of the link: who would have less asks for nothing.
constexpr double kLeastPart = 0.05;

}  // namespace

void LinkShares::prioritise(Member member) {
  const auto found = members_.find(member);
  if (found != members_.end()) {
    found->second.urgency.early = false;
  }
}

Transfer LinkShares::transfer(Member member, const Fetching& fetching, Instant now) const {
  const FetchUrgency& urgency = fetching.urgency;
  const bool in_time = bytes_per_second_ > 0 && urgency.due && *urgency.due > now;
  return {.id = member,
          .link_class = urgency.early ? LinkClass::kPrewarm : LinkClass::kActivation,
          .deadline = in_time ? *urgency.due : Instant::max(),
          .path = {kLink},
          .bytes_per_second_max = fetching.most};
}

bool LinkShares::may_ask(Member member, Instant now) {
  measure(now);
  if (!members_.contains(member)) {
    return true;
  }
  const double rate = bytes_per_second_ > 0 ? static_cast<double>(bytes_per_second_) : 1.0;
  const std::vector<LinkView> links{{.id = kLink, .bytes_per_second = rate}};
  std::vector<Transfer> transfers;
  std::size_t mine = 0;
  for (const auto& [id, fetching] : members_) {
    mine = id == member ? transfers.size() : mine;
    transfers.push_back(transfer(id, fetching, now));
  }
  // What it can use is what is asked here.
  transfers[mine].bytes_per_second_max = std::numeric_limits<double>::max();
  return share_links(links, transfers, LinkRule::kClasses)[mine] > rate * kLeastPart;
}

void LinkShares::took(Member member, std::uint64_t bytes, Instant now) {
  measure(now);
  const auto found = members_.find(member);
  if (found != members_.end()) {
    found->second.bytes += bytes;
  }
}

void LinkShares::held(Member member) {
  const auto found = members_.find(member);
  if (found != members_.end()) {
    found->second.held = true;
  }
}

bool LinkShares::goes_before(Member a, Member b, Instant now) const {
  const auto first = members_.find(a);
  const auto second = members_.find(b);
  if (first == members_.end() || second == members_.end()) {
    return false;
  }
  const Transfer one = transfer(a, first->second, now);
  const Transfer other = transfer(b, second->second, now);
  return std::tuple(one.link_class, one.deadline) < std::tuple(other.link_class, other.deadline);
}

/// Closes the window, where its time is over.
void LinkShares::measure(Instant now) {
  const Duration since = now - window_began_;
  if (since < kWindow) {
    return;
  }
  window_began_ = now;
  for (auto& [id, fetching] : members_) {
    const double rate = static_cast<double>(fetching.bytes) / to_seconds(since);
    const bool all = fetching.held || rate >= kAllPart * static_cast<double>(bytes_per_second_);
    fetching.most = all ? std::numeric_limits<double>::max() : rate / kAllPart;
    fetching.bytes = 0;
    fetching.held = false;
  }
}

}  // namespace heddle::policy
