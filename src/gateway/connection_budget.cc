#include "gateway/connection_budget.h"

#include <algorithm>

namespace heddle::gateway {

namespace {

constexpr std::size_t kReserve = 16;    ///< Files of checkpoints, logs, history, resolvers.
constexpr std::size_t kOfAProcess = 4;  ///< Its link, its output, its end, what it is handed.
constexpr std::size_t kConnectionsMin = 4;
constexpr std::size_t kOverflowMin = 2;
constexpr std::size_t kOverflowMax = 64;

}  // namespace

ConnectionBudget connection_budget(const DescriptorNeeds& needs) {
  const std::size_t each = needs.of_a_connection;
  const std::uint64_t kept = needs.open + kReserve + kOfAProcess * needs.processes;
  const std::uint64_t room = (needs.limit - std::min(needs.limit, kept)) / each;
  ConnectionBudget budget{.overflow = std::clamp<std::size_t>(room / 8, kOverflowMin, kOverflowMax),
                          .right_limit = kept + each * (needs.connections + kOverflowMax)};
  const std::uint64_t fit = std::max<std::uint64_t>(
      room - std::min<std::uint64_t>(room, budget.overflow), kConnectionsMin);
  budget.connections = std::min<std::uint64_t>(needs.connections, fit);
  return budget;
}

}  // namespace heddle::gateway
