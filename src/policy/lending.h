#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

/// When idle models give their pages to requests of other models that wait for memory (Prism lends
/// pages between models; the rule by which it is decided here is ski rental).
namespace heddle::policy {

/// An idle model of a device that could lend what it holds.
struct LenderCandidate {
  ModelId model{};
  double worth = 0;        ///< What losing it is expected to cost [s], as policy/value.h has it.
  std::int64_t pages = 0;  ///< That its eviction frees; > 0.
  Instant last_used{};
};

struct Lending {
  std::vector<ModelId> lenders{};  ///< To evict, in this order.
  double paid = 0;                 ///< Their worth in sum [s].
  /// Until the next of them would lend, if as many sequences go on waiting; nullopt: enough lend,
  /// or none is left.
  std::optional<Duration> next{};
};

/// For how long sequences will wait for others to end is not known, but for how long they have:
/// once that is as much as what idle models are worth, those give their pages. So no sequence waits
/// for more than twice what knowing the future would have made of it, as with a pair of skis that
/// is rented until the rent has cost as much as buying it. Models lend that are worth least for
/// their pages, of equals the least recently used, until they make up `lacking` pages. `waited` is
/// what `sequences` > 0 sequences have waited so far, in sum [s]. Pure; O(n log n).
[[nodiscard]] Lending choose_lenders(std::span<const LenderCandidate> idle,
                                     std::int64_t lacking,
                                     double waited,
                                     std::int64_t sequences);

/// Until so many sequences, which have waited `waited` [s] in sum, will have waited for as much as
/// something costs [s]; at least a millisecond.
[[nodiscard]] Duration until_paid(double cost, double waited, std::int64_t sequences);

/// How many of `sequences` > 0 sequences, which lack `pages` in sum, find room in `free` pages of
/// another device that may take `most` more.
[[nodiscard]] std::int64_t recallable(std::int64_t sequences,
                                      std::int64_t pages,
                                      std::int64_t free,
                                      std::int64_t most);

}  // namespace heddle::policy
