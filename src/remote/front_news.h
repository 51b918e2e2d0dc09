#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "remote/messages.h"

namespace heddle::remote {

/// Whether what a gateway says to its manager can be so: it is about requests of its own front, and
/// its numbers are such that a manager can reckon with them. kCorrupt, with what was named and what
/// would be right.
Result<void> check_news(const GatewayToManager& message, FrontId front);

}  // namespace heddle::remote
