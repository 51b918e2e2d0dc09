#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>

#include "base/time.h"
#include "fetch/rate_limit.h"
#include "policy/links.h"

namespace heddle::agent {

/// The host's link to where models are fetched from, shared by all fetches: together they take no
/// more than it has. What is fetched early asks for nothing while a request waits for another fetch
/// (policy::share_links), and what requests wait for goes on alike. Any thread.
class FetchLink {
 public:
  using Member = policy::TransferId;

  /// @param bytes_per_second  Of all together; 0: as fast as it goes.
  explicit FetchLink(std::uint64_t bytes_per_second) : limit_(bytes_per_second) {}

  /// A fetch begins.
  [[nodiscard]] Member join(bool early);
  /// A request waits for what was fetched early.
  void prioritise(Member member);
  /// A fetch has ended.
  void leave(Member member);

  /// Waits until it may ask for more, or until a stop.
  void turn(Member member, const std::stop_token& stop);
  /// So many bytes have come: waits until the link has had time for them, or until a stop.
  void took(std::uint64_t bytes, const std::stop_token& stop) { limit_.take_and_wait(bytes, stop); }

 private:
  [[nodiscard]] bool must_wait(Member member) const;

  fetch::RateLimit limit_;
  std::mutex mutex_{};
  std::condition_variable_any changed_{};
  std::uint64_t joined_ = 0;
  std::map<Member, policy::LinkClass> members_{};  // Guarded by mutex_.
};

}  // namespace heddle::agent
