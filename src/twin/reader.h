#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/agent_core.h"
#include "twin/agenda.h"
#include "twin/contents.h"
#include "twin/faults.h"
#include "twin/setup.h"

namespace heddle::twin {

/// Reads images from files to the host's memory, one at a time, and tells after each part how far
/// it is. One thread.
class Reader {
 public:
  using OnEvent = std::function<void(const core::AgentEvent&)>;

  /// `agenda`, `faults` and `contents` outlive it; the last may be null.
  Reader(const Paths& paths, Agenda& agenda, Faults& faults, Contents* contents, OnEvent on_event)
      : paths_(paths),
        agenda_(agenda),
        faults_(faults),
        contents_(contents),
        on_event_(std::move(on_event)) {}

  /// It reads nothing now.
  void start(core::StartRead read, std::uint64_t image_bytes);
  /// It reads this, and stops after the next part.
  void cancel(ModelId model);

 private:
  void read_on(std::uint64_t done);
  void end(std::optional<Error> error);

  Paths paths_;
  Agenda& agenda_;
  Faults& faults_;
  Contents* contents_;
  OnEvent on_event_;
  std::optional<core::StartRead> reading_{};
  std::uint64_t image_bytes_ = 0;
  bool stops_ = false;
};

}  // namespace heddle::twin
