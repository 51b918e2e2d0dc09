#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// A NIC, a PCIe or NVLink connection, a disk, a memory bus.
using LinkId = Id<struct LinkIdTag>;
/// Bytes on their way.
using TransferId = Id<struct TransferIdTag>;

/// What a transfer is for, the most urgent first.
enum class LinkClass : std::uint8_t {
  kStageMessage,   ///< Activations between pipeline stages: tiny, and every token waits for them.
  kActivation,     ///< Weights that a request waits for. Earliest deadline first.
  kKvMove,         ///< Keys and values of running requests.
  kConsolidation,  ///< The rest of a pipeline's weights.
  kPrewarm,        ///< Weights that nobody waits for yet.
};
/// As in metric labels: "kv_move".
[[nodiscard]] std::string_view name(LinkClass link_class);

enum class LinkRule : std::uint8_t {
  kFairShare,  ///< HydraServe: stage messages first, all others alike.
  kClasses,    ///< heddle: class by class, deadlines within kActivation.
};

struct LinkView {
  LinkId id{};
  double bytes_per_second = 0.0;
};

struct Transfer {
  TransferId id{};
  LinkClass link_class = LinkClass::kPrewarm;
  Instant deadline{};          ///< Of kActivation.
  std::vector<LinkId> path{};  ///< The links it crosses, all at once; one or more.
  /// What it can use at most [bytes/s], as it may be slow where it comes from.
  double bytes_per_second_max = std::numeric_limits<double>::max();
};

/// Of a link that stage messages cross, so much stays free for them, so that its queue is short.
inline constexpr double kMessagePart = 0.05;

/// The rate [bytes/s] of every transfer until one of them starts or ends, in their order. Under
/// kClasses a class gets what those above it leave on all links of the path; kActivation one after
/// the other by deadline, those of one deadline and the others max-min fair within their class; a
/// prewarm gets nothing on a link that an activation crosses, since it would only make the next
/// cold start there later. Nobody but a stage message is given more than it can use. No link is
/// given more than it has, and none that somebody could use is left idle but for that. Used by the
/// simulator, and by the live loader to pace its readers. Pure; ties by id. O(T log T + F^2 P) for
/// F transfers that share fairly over P links each: callers pass those that contend with each
/// other.
[[nodiscard]] std::vector<double> share_links(std::span<const LinkView> links,
                                              std::span<const Transfer> transfers,
                                              LinkRule rule);

/// How a live loader cuts a transfer up. Priorities of streams do not reach work that is queued
/// already, so what is not urgent keeps little queued: an urgent copy waits for one piece at most.
struct PieceLimits {
  std::int64_t bytes = 0;        ///< Of a piece.
  std::int64_t outstanding = 0;  ///< Pieces of the class on one link.
};
[[nodiscard]] PieceLimits piece_limits(LinkClass link_class);

/// Whether `a` sends its next piece before `b`, where both could: by class, then, of activations,
/// by deadline, then by id.
[[nodiscard]] bool sends_before(const Transfer& a, const Transfer& b);

}  // namespace heddle::policy
