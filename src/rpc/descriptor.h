#pragma once

#include "base/descriptor.h"

namespace heddle::rpc {

using heddle::Descriptor;

}  // namespace heddle::rpc
