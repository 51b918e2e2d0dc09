#pragma once

#include <string>

#include "base/child.h"
#include "base/descriptor.h"
#include "base/result.h"

namespace heddle {

/// The descriptor under which a process that start_self() has started finds its socket.
inline constexpr int kParentSocket = 3;

/// Starts this program again as `heddle VERB --fd 3`. It inherits `socket`, as kParentSocket, and
/// the standard descriptors, nothing else. It dies with the thread that called, once it has called
/// follow_parent(). kUnavailable when no process can be made.
[[nodiscard]] Result<Child> start_self(std::string verb, Descriptor socket);

/// The first thing that such a process does: it ends with its parent, to which it leaves what a
/// terminal's Ctrl-C, or a signal to the whole group, asks for.
void follow_parent();

}  // namespace heddle
