#pragma once

#include <functional>

#include "base/time.h"

namespace heddle::external {

/// Looks whether it is `done`, at once and then again and again, ever less often (after 50 us at
/// first, every 10 ms at last); false when `patience` has passed. For what tells nobody when it
/// happens, as most of /proc. Blocks: not for the loop.
[[nodiscard]] bool wait_until(const std::function<bool()>& done, Duration patience);

}  // namespace heddle::external
