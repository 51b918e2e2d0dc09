#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "policy/watchdog.h"

#include <sys/types.h>

namespace heddle::external {

/// What /proc says of one process.
struct ProcessFacts {
  char state = '?';              ///< As in ps: 'R', 'S', 'T', 'Z' ...
  pid_t parent = 0;              ///< Its parent's number.
  std::uint64_t start_time = 0;  ///< [ticks since boot]; with the number, its identity.
  Duration ran{};                ///< Of a core's time; to some milliseconds.
};

/// Nothing where there is no such process (any more).
[[nodiscard]] std::optional<ProcessFacts> process_facts(pid_t pid);

/// What several processes do.
struct Activity {
  bool stopped = false;  ///< A signal has one of them stand still.
  Duration ran{};        ///< As that of all together.
};
[[nodiscard]] Activity activity_of(const std::vector<pid_t>& pids);

/// How a process is, for whoever watches it. Where the kernel does not count how long threads wait
/// for cores, only how long they ran. Nothing where there is no such process.
[[nodiscard]] std::optional<policy::ProcessSigns> process_signs(pid_t pid);

/// All there are, by number.
[[nodiscard]] std::vector<pid_t> all_processes();

/// The whole of a small file (of /proc or a control group); empty where it cannot be read.
[[nodiscard]] std::string read_small_file(const std::string& path);
/// Whether it took `text` in one write.
bool write_small_file(const std::string& path, const std::string& text);

/// Whether the environment that the process was started with has `assignment` ("NAME=value"). One
/// that is about to become a program is waited for, 100 ms at most: until then it has none.
[[nodiscard]] bool has_in_environment(pid_t pid, const std::string& assignment);

/// Those of a mark, without zombies.
[[nodiscard]] std::vector<pid_t> marked_processes(const std::string& mark);

}  // namespace heddle::external
