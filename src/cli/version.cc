#include <cstdio>

#include "base/units.h"
#include "cli/verbs.h"
#include "config/config.h"

namespace heddle::cli {

std::string version_text() {
  return HEDDLE_VERSION;
}

int version() {
  std::printf("heddle %s\n", version_text().c_str());
  const config::Machine machine = config::this_machine();
  std::printf("GPUs: %zu%s\n",
              machine.gpus.size(),
              machine.gpus.empty() ? (" (" + machine.no_gpus + ")").c_str() : "");
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    const config::Gpu& gpu = machine.gpus[i];
    std::printf("  %zu: %s, %s%s\n",
                i,
                gpu.name.c_str(),
                format_bytes(gpu.memory).c_str(),
                gpu.unusable.empty() ? "" : (", " + gpu.unusable).c_str());
  }
  return 0;
}

}  // namespace heddle::cli
