#pragma once

#include "core/manager/parts.h"

/// What agents and workers say.
namespace heddle::core::manager {

void hear(const Parts& core, const WorkerSaid& said);
void hear(const Parts& core, const ImageFailed& failed);
void hear(const Parts& core, const GroupFormed& formed);

}  // namespace heddle::core::manager
