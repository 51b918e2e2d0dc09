#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>

#include "base/time.h"
#include "policy/links.h"

namespace heddle::agent {

/// The host's link to where models are fetched from, shared by all fetches. What a request waits
/// for goes before what is fetched early, and of the former what began first
/// (policy::sends_before). Any thread.
class FetchLink {
 public:
  using Member = policy::TransferId;

  /// @param bytes_per_second  Of all together; 0: as fast as it goes.
  explicit FetchLink(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}

  /// A fetch begins.
  [[nodiscard]] Member join(bool early, Instant now);
  /// A request waits for what was fetched early.
  void hasten(Member member, Instant now);
  /// A fetch has ended.
  void leave(Member member);

  /// Waits until it may ask for more: an early fetch while no other runs. Or until a stop.
  void turn(Member member, const std::stop_token& stop);
  /// So many bytes have come for it: waits until the link has had time for them, or until a stop.
  void took(Member member, std::uint64_t bytes, const std::stop_token& stop);

 private:
  [[nodiscard]] bool must_wait(Member member) const;
  [[nodiscard]] bool is_first(Member member) const;

  std::uint64_t rate_;
  std::mutex mutex_{};
  std::condition_variable_any changed_{};
  std::uint64_t joined_ = 0;
  std::map<Member, policy::Transfer> members_{};
  std::map<Member, int> waiting_{};  ///< How many threads of each wait for time on the link.
  Instant paid_until_{};             ///< What was taken so far fills the link until then.
};

}  // namespace heddle::agent
