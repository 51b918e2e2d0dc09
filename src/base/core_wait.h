#pragma once

#include "base/time.h"

namespace heddle {

/// How long the calling thread has been ready to run so far, but had no core: the kernel's run
/// delay. What a host does to the cores of a virtual machine is no part of it. 0 where the kernel
/// does not count it.
[[nodiscard]] Duration waited_for_core();

}  // namespace heddle
