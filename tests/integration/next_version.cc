// The program after this one, for tests of upgrades: it speaks a version more between hosts, and
// calls itself otherwise. Linked before the library, it stands in for rpc/host_versions.cc.
#include "rpc/greet.h"

namespace heddle::rpc {

Versions host_versions() {
  return {.least = 1, .most = 2};
}

}  // namespace heddle::rpc
