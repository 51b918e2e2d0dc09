#pragma once

#include "core/manager/parts.h"

/// What gateways and operators say.
namespace heddle::core::manager {

void hear(const Parts& core, const RequestArrived& arrived);
void hear(const Parts& core, const RequestFinished& finished);
void hear(const Parts& core, const RequestCancelled& cancelled);
void hear(const Parts& core, const AdminLoad& load);
void hear(const Parts& core, const AdminUnload& unload);

}  // namespace heddle::core::manager
