#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/event_log.h"
#include "base/result.h"
#include "base/time.h"
#include "core/codec.h"

namespace heddle::host {

/// What a core has heard and wanted, on disk, for replay. Loop thread.
class CoreLog {
 public:
  /// Makes the file `prefix`.`name`; none for an empty prefix. Errors as EventLog::create.
  Result<void> open(const std::string& prefix, const std::string& name) {
    if (prefix.empty()) {
      return {};
    }
    auto opened = EventLog::create({.path = prefix + "." + name});
    if (!opened) {
      return opened.error();
    }
    log_ = std::move(*opened);
    return {};
  }

  /// Notes a step, before its commands are carried out.
  template <class Event, class Command>
  void write(Instant at, const Event& event, const std::vector<Command>& commands) {
    if (log_ != nullptr) {
      log_->write(core::log_entry(at, event, commands));
    }
  }

 private:
  std::unique_ptr<EventLog> log_{};
};

}  // namespace heddle::host
