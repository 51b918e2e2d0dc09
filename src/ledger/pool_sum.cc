#include "ledger/pool_sum.h"

#include <cstddef>

namespace heddle::ledger {

void add(const PoolUsage& other, PoolUsage& sum) {
  sum.total += other.total;
  sum.free += other.free;
  for (std::size_t kind = 0; kind < sum.by_kind.size(); ++kind) {
    sum.by_kind.at(kind).reserved += other.by_kind.at(kind).reserved;
    sum.by_kind.at(kind).held += other.by_kind.at(kind).held;
  }
}

}  // namespace heddle::ledger
