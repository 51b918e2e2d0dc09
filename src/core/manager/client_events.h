#pragma once

#include "core/manager/parts.h"

/// What gateways and operators say.
namespace heddle::core::manager {

void hear(const Parts& core, const RequestArrived& arrived);
/// Those of the front that it does not name have ended; those that are new were another manager's.
void hear(const Parts& core, const FrontState& front);
void hear(const Parts& core, const RequestFinished& finished);
void hear(const Parts& core, const RequestCancelled& cancelled);
void hear(const Parts& core, const AdminLoad& load);
void hear(const Parts& core, const AdminUnload& unload);

}  // namespace heddle::core::manager
