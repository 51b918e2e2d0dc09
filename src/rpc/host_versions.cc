#include "rpc/greet.h"

namespace heddle::rpc {

Versions host_versions() {
  return {.least = 1, .most = 1};
}

}  // namespace heddle::rpc
