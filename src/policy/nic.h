#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// Weights on their way to a host for one starting worker.
using FetchId = Id<struct FetchIdTag>;

struct Fetch {
  FetchId id{};
  std::int64_t bytes = 0;  ///< S: still to come; > 0.
  Instant deadline{};      ///< D: to meet the first token's objective with what follows the fetch.
  friend bool operator==(const Fetch&, const Fetch&) = default;
};

/// How the fetches of one host share its network interface, and with that, whom it may admit.
enum class NicRule : std::uint8_t {
  /// HydraServe, Eq. 3: all get the same, so S_i <= B / (N + 1) * (D_i - T) must hold for every
  /// fetch. Ours: for the new one too; the paper speaks of those already there.
  kEqualShare,
  /// Earliest deadline first, so sum of S_i over D_i <= D must fit in B * (D - T) for every D. It
  /// admits whatever equal shares admit, and more: from S_i <= B / (N + 1) * (D_i - T) follows
  /// sum over D_i <= D <= B * (D - T). Possible because our prefetcher paces itself.
  kEarliestDeadline,
};

/// What one network interface has promised. A value. A fetch whose deadline has passed is late: it
/// counts for nobody's admission (one such would close the host for good; the paper has no rule),
/// gets its equal share, or under earliest deadline first what the others leave.
class Nic {
 public:
  /// `bytes_per_second` [1, 10^12] as measured, not as sold.
  Nic(std::int64_t bytes_per_second, NicRule rule)
      : bytes_per_second_(bytes_per_second), rule_(rule) {}

  /// Eq. 4: takes off what has come since the last call, and drops what is complete. `now` never
  /// goes back. The paper divides by the N of the last change; here those that end in between
  /// leave their share to the rest. O(N^2).
  void advance(Instant now);

  /// Whether every fetch, the new one with them, would meet its deadline, from the last advance on.
  /// O(N log N).
  [[nodiscard]] bool admits(const Fetch& fetch) const;
  /// What a new fetch would obtain [bytes/s], averaged until it is complete: B / (N + 1), or what
  /// those with earlier deadlines leave. For the prediction of TTFT, which must not use B.
  [[nodiscard]] double bandwidth_for(const Fetch& fetch) const;

  /// Adds an admitted fetch; its id is new.
  void start(const Fetch& fetch);
  /// Drops it, complete or cancelled; does nothing for one that is not there.
  void end(FetchId fetch);
  /// `bytes` really are still to come: believed where the estimate is off by more than a fifth.
  void observe(FetchId fetch, std::int64_t bytes);

  [[nodiscard]] const std::vector<Fetch>& fetches() const { return fetches_; }  ///< By id.
  [[nodiscard]] std::int64_t bytes_per_second() const { return bytes_per_second_; }

 private:
  [[nodiscard]] std::int64_t capacity(Duration duration) const;
  void advance_equally(Duration duration);
  void advance_by_deadline(Duration duration);
  [[nodiscard]] bool late(const Fetch& fetch) const { return fetch.deadline <= updated_; }

  std::int64_t bytes_per_second_;
  NicRule rule_;
  Instant updated_{};
  std::vector<Fetch> fetches_{};
};

}  // namespace heddle::policy
