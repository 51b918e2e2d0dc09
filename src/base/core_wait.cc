#include "base/core_wait.h"

#include <fstream>

namespace heddle {

Duration waited_for_core() {
  std::ifstream file("/proc/thread-self/schedstat");
  Duration::rep ran = 0;
  Duration::rep waited = 0;
  return file >> ran >> waited ? Duration(waited) : Duration{};
}

}  // namespace heddle
