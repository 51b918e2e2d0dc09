#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::sim {

/// Bytes on their way over one link.
using FlowId = Id<struct FlowIdTag>;

/// Who goes first on a link; a class is served while none above it has anything to send. (Messages
/// between pipeline stages come before all of these: they are small enough to be latency only.)
enum class LinkClass : std::uint8_t {
  kCritical,     ///< A request waits for it.
  kKvMove,       ///< Keys and values of running requests.
  kConsolidate,  ///< The rest of a pipeline's weights.
  kPrewarm,      ///< Weights that nobody waits for yet.
};
inline constexpr std::size_t kLinkClasses = 4;

/// How flows of one class share a link.
enum class LinkService : std::uint8_t {
  kFairShare,         ///< All at once, each at an equal rate.
  kEarliestDeadline,  ///< One after the other, by deadline.
};

/// A link that flows contend for: NIC, PCIe, NVLink, memory bus, disk. Flows are fluid. Each
/// change costs O(log n) whatever the number of flows: with equal shares, one "virtual" clock of
/// bytes served per flow tells when each will be done.
class Link {
 public:
  Link(double bytes_per_second, LinkService service) : rate_(bytes_per_second), service_(service) {}

  /// Starts `bytes` > 0 at `now`. `deadline` orders kEarliestDeadline.
  void add(Instant now, FlowId id, double bytes, LinkClass service_class, Instant deadline);
  /// Forgets a flow; returns what it had not moved yet. 0 when there is no such flow.
  double cancel(Instant now, FlowId id);
  /// Moves a flow to another class, with what is left of it.
  void reclassify(Instant now, FlowId id, LinkClass service_class);
  /// Changes the speed; 0 stops everything.
  void set_rate(Instant now, double bytes_per_second);

  /// When the next flow will be done if nothing changes; nullopt when none ever will.
  [[nodiscard]] std::optional<Instant> next_done() const;
  /// Takes the flows that are done at `now`, in the order of finishing, then of ids.
  std::vector<FlowId> take_done(Instant now);

  [[nodiscard]] std::size_t flows() const { return flows_.size(); }
  /// Flows of this class or a more urgent one.
  [[nodiscard]] std::size_t flows_before(LinkClass service_class) const;
  /// Bytes of a flow that are not moved yet, at `now`; 0 when there is no such flow.
  [[nodiscard]] double remaining(Instant now, FlowId id) const;
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] double bytes_moved() const { return moved_; }

 private:
  struct Flow {
    LinkClass service_class{};
    double key = 0;  ///< Fair share: the virtual clock when it is done. Else the deadline [ns].
    double remaining = 0;  ///< kEarliestDeadline only.
  };
  struct Queue {
    std::set<std::pair<double, FlowId>> order{};
    double clock = 0;  ///< Bytes that each flow present all along would have got.
  };

  [[nodiscard]] const Queue* active() const;
  [[nodiscard]] Queue& queue(LinkClass service_class) {
    return queues_[static_cast<std::size_t>(service_class)];
  }
  [[nodiscard]] double left(const Queue& queue, FlowId id, const Flow& flow) const;
  void advance(Instant now);
  void insert(FlowId id, double bytes, LinkClass service_class, Instant deadline);
  void erase(FlowId id);

  double rate_;
  LinkService service_;
  Instant advanced_{};
  double moved_ = 0;
  std::map<FlowId, Flow> flows_{};
  std::array<Queue, kLinkClasses> queues_{};
};

}  // namespace heddle::sim
