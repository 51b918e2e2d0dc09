#include <cstdio>

#include "cli/verbs.h"

namespace heddle::cli {

std::string version_text() {
  return HEDDLE_VERSION;
}

int version() {
  std::printf("heddle %s\n", version_text().c_str());
  return 0;
}

}  // namespace heddle::cli
