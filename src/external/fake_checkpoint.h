#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "external/device_checkpoint.h"

namespace heddle::external {

/// Acts out device checkpoints, for machines without devices: keeps to the order of states that the
/// driver wants, and fails where it is told to.
class FakeCheckpoint : public DeviceCheckpoint {
 public:
  enum class State { kRunning, kLocked, kSaved };

  [[nodiscard]] bool uses_device(pid_t pid) override { return everybody || states.contains(pid); }
  Result<void> lock(pid_t pid, Duration) override {
    return move(pid, "lock", State::kRunning, State::kLocked);
  }
  Result<void> save(pid_t pid) override { return move(pid, "save", State::kLocked, State::kSaved); }
  Result<void> restore(pid_t pid) override {
    return move(pid, "restore", State::kSaved, State::kLocked);
  }
  Result<void> unlock(pid_t pid) override {
    return move(pid, "unlock", State::kLocked, State::kRunning);
  }

  bool everybody = false;           ///< Whoever asks uses a device.
  std::map<pid_t, State> states{};  ///< Of those that use devices.
  std::set<std::string> fails{};    ///< "save 7" or, of any process, "save".
  std::vector<std::string> calls{};

 private:
  Result<void> move(pid_t pid, const std::string& what, State from, State to) {
    calls.push_back(what + " " + std::to_string(pid));
    if (fails.contains(calls.back()) || fails.contains(what)) {
      return Error{Code::kUnavailable, what + " was told to fail"};
    }
    HEDDLE_CHECK(states[pid] == from);
    states[pid] = to;
    return {};
  }
};

}  // namespace heddle::external
