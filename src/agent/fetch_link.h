#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <vector>

#include "base/time.h"
#include "policy/link_shares.h"

namespace heddle::agent {

/// The host's link to where models are fetched from, shared by all fetches: together they take no
/// more than it has, and who may ask is decided as LinkShares has it. What has come all the same of
/// others waits for what goes before it. Any thread.
class FetchLink {
 public:
  using Member = policy::LinkShares::Member;
  static constexpr Duration kForever = Duration::max();

  /// @param bytes_per_second  Of all together; 0: as fast as it goes.
  explicit FetchLink(std::uint64_t bytes_per_second)
      : bytes_per_second_(bytes_per_second), shares_(bytes_per_second) {}

  /// A fetch begins.
  [[nodiscard]] Member join(policy::FetchUrgency urgency);
  /// A request waits for what was fetched early.
  void prioritise(Member member);
  /// A fetch has ended.
  void leave(Member member);

  /// Waits until it may ask for more, until a stop, or for so long at most. Whether it may.
  bool turn(Member member, const std::stop_token& stop, Duration most = kForever);
  /// So many bytes have come: waits until the link has had time for them, or until a stop.
  void took(Member member, std::uint64_t bytes, const std::stop_token& stop);

 private:
  /// Bytes that have come, and wait.
  struct Waiting {
    Member member{};
    Instant since{};
  };
  /// Who is before a ticket; nobody where it is first.
  [[nodiscard]] std::vector<Member> ahead_of(std::uint64_t ticket, Instant now) const;
  void wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, Duration most);
  void change();
  [[nodiscard]] bool goes_before(const Waiting& a, const Waiting& b, Instant now) const;

  const std::uint64_t bytes_per_second_;
  std::mutex mutex_{};  // Guards all below.
  std::condition_variable_any changed_{};
  policy::LinkShares shares_;
  std::uint64_t changes_ = 0;
  std::uint64_t joined_ = 0;
  std::uint64_t tickets_ = 0;
  std::map<std::uint64_t, Waiting> waiting_{};  ///< By ticket: who came first.
  Instant paid_{};                              ///< When what has passed so far is paid for.
};

}  // namespace heddle::agent
