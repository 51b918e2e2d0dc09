#pragma once

#include "ledger/ledger.h"

namespace heddle::ledger {

/// Adds the pages of another pool, as of another host; the version stays.
void add(const PoolUsage& other, PoolUsage& sum);

}  // namespace heddle::ledger
