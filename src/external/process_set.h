#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

#include <sys/types.h>

namespace heddle::external {

/// The processes of one engine: all that its first one has started, whatever group, session or
/// parent they have by now. Calls may block for as long as they say: not for the loop. Any thread,
/// one call at a time but for members() and kill().
class ProcessSet {
 public:
  virtual ~ProcessSet() = default;

  /// Those that run (or stand still), without zombies.
  [[nodiscard]] virtual std::vector<pid_t> members() const = 0;
  /// Has all of them stand still; returns when they do. kDeadlineExceeded, with all running again,
  /// where one does not within `patience`.
  virtual Result<void> freeze(Duration patience) = 0;
  virtual Result<void> thaw(Duration patience) = 0;
  /// Ends them as SIGKILL does, frozen or not. They may still be on their way when it returns.
  virtual void kill() = 0;
};

/// How processes are known to belong together, and how they are made to stand still.
enum class Grouping : std::uint8_t {
  kCgroup2,  ///< A control group of version 2: cgroup.freeze, cgroup.kill.
  kCgroup1,  ///< One of version 1's freezer.
  kMarked,   ///< A variable in their environment that they inherit; SIGSTOP. Works everywhere.
};
[[nodiscard]] std::string_view name(Grouping grouping);

/// The name of the variable that marks processes, whatever the grouping: a second life of ours
/// finds by it what the first left behind.
inline constexpr std::string_view kMarkVariable = "HEDDLE_ENGINE";

/// A set that is empty still. What is started in it joins by writing "0" to `join_file` (if there
/// is one) and has kMarkVariable=`mark` in its environment.
struct OwnSet {
  std::shared_ptr<ProcessSet> set{};
  std::string join_file{};  ///< Empty: the mark is enough.
  std::string directory{};  ///< Of the control group; empty: none. Removed with the set.
};

/// @param label  Names the control group: of letters, digits, '-', '_' and '.'.
/// @param mark   Nobody else's.
/// kUnavailable where this machine, or this account, does not let us.
[[nodiscard]] Result<OwnSet> make_process_set(Grouping grouping,
                                              const std::string& label,
                                              const std::string& mark);
/// The best of what this machine and account let us have, tried out.
[[nodiscard]] Grouping best_grouping();

/// Ends whatever runs under a mark or in the control group of a life of ours that has ended.
/// @param directory  As OwnSet has it; may be empty, or gone.
/// Waits until it has ended; kDeadlineExceeded where it does not within `patience`.
[[nodiscard]] Result<void> end_leftover(const std::string& directory,
                                        const std::string& mark,
                                        Duration patience);

}  // namespace heddle::external
