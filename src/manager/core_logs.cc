#include "manager/core_logs.h"

#include <utility>

namespace heddle::manager {

Result<void> CoreLogs::open(const std::string& prefix) {
  if (prefix.empty()) {
    return {};
  }
  for (auto& [log, name] :
       {std::pair(&manager_, ".manager"), {&agent_, ".agent"}, {&engines_, ".engines"}}) {
    auto opened = EventLog::create({.path = prefix + name});
    if (!opened) {
      return opened.error();
    }
    *log = std::move(*opened);
  }
  return {};
}

}  // namespace heddle::manager
