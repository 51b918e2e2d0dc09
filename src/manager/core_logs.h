#pragma once

#include <memory>
#include <string>

#include "base/event_log.h"
#include "base/result.h"

namespace heddle::manager {

/// Where the cores of the serving process log what they hear and want, for replay; workers have
/// logs of their own.
class CoreLogs {
 public:
  /// Makes the files `prefix`.manager, .agent and .engines; none for an empty prefix. Errors as
  /// EventLog::create.
  Result<void> open(const std::string& prefix);

  /// Null when nothing is logged.
  [[nodiscard]] EventLog* manager() const { return manager_.get(); }
  [[nodiscard]] EventLog* agent() const { return agent_.get(); }
  [[nodiscard]] EventLog* engines() const { return engines_.get(); }

 private:
  std::unique_ptr<EventLog> manager_{};
  std::unique_ptr<EventLog> agent_{};
  std::unique_ptr<EventLog> engines_{};
};

}  // namespace heddle::manager
