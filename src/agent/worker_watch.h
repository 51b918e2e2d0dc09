#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "policy/watchdog.h"
#include "rpc/messages.h"

#include <sys/types.h>

namespace heddle::agent {

/// How the worker of a device is, and was.
struct WorkerHealth {
  std::string trouble{};        ///< What is wrong with it now, for people; empty: nothing.
  std::uint64_t suspected = 0;  ///< Times that it was suspected of hanging.
  std::array<std::uint64_t, policy::kHangReasons> hung{};  ///< Times that it was ended for that.
};

/// Watches the worker of one device, over all its lives: hears its beats, asks the kernel where
/// they fail to come, says in the log what it suspects. Loop thread only.
class WorkerWatch {
 public:
  /// A worker that is down for longer than this has trouble.
  static constexpr Duration kDownPatience = std::chrono::seconds(10);

  WorkerWatch(std::string device, Instant now) : device_(std::move(device)), down_since_(now) {}

  void begin(pid_t pid, Instant now);
  void heard_hello();
  void heard(const rpc::Beat& beat);
  void ended(Instant now);

  /// To be called at least as often as policy::Watchdog says. What is wrong with it, where it has
  /// to be ended for that.
  struct Hang {
    policy::HangReason reason{};
    std::string why{};
  };
  [[nodiscard]] std::optional<Hang> look(Instant now);

  [[nodiscard]] const WorkerHealth& health() const { return health_; }

 private:
  struct Life {
    pid_t pid = -1;
    policy::Watchdog dog;
    policy::Health said = policy::Health::kFine;  ///< In the log.
  };
  void say(Life& life, const policy::Verdict& verdict);

  std::string device_;
  Instant down_since_;
  bool up_ = false;
  std::optional<Life> life_{};
  WorkerHealth health_{};
};

}  // namespace heddle::agent
