#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/time.h"
#include "policy/links.h"

namespace heddle::policy {

/// Who waits for a fetch.
struct FetchUrgency {
  bool early = false;            ///< No request does.
  std::optional<Instant> due{};  ///< When the first token that waits is to be there, if one does.
};

/// Who of those who fetch over one link may ask for more, by share_links: what requests
/// wait for by deadline, while that can be met; then what is late or has no deadline, alike; then
/// what nobody waits for. What a fetch can use is measured, so that one that is slow at its source
/// leaves the rest of the link to the next. A value; `now` does not go back.
class LinkShares {
 public:
  using Member = TransferId;

  /// @param bytes_per_second  Of the link; 0: not known, so nobody uses the whole of it, and what
  ///                          requests wait for goes on alike.
  explicit LinkShares(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  void join(Member member, FetchUrgency urgency) { members_[member] = {.urgency = urgency}; }
  /// A request waits for what was fetched early. Of no effect where the member is gone.
  void prioritise(Member member);
  void leave(Member member) { members_.erase(member); }

  /// Whether it may ask for more.
  [[nodiscard]] bool may_ask(Member member, Instant now);
  /// So many of its bytes have passed the link.
  void took(Member member, std::uint64_t bytes, Instant now);
  /// It could have gone on, and was held up.
  void held(Member member);
  /// Whether what has come of `a` goes before what has come of `b`.
  [[nodiscard]] bool goes_before(Member a, Member b, Instant now) const;

 private:
  struct Fetching {
    FetchUrgency urgency{};
    std::uint64_t bytes = 0;  ///< In this window.
    bool held = true;         ///< In this window, or it was not there for all of it.
    double most = std::numeric_limits<double>::max();  ///< What it can use [bytes/s].
  };
  [[nodiscard]] Transfer transfer(Member member, const Fetching& fetching, Instant now) const;
  void measure(Instant now);

  std::uint64_t bytes_per_second_;
  std::map<Member, Fetching> members_{};
  Instant window_began_{};
};

}  // namespace heddle::policy
