#include "external/process_set.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>

#include "external/patience.h"
#include "external/proc.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::external {

using namespace std::chrono_literals;

namespace {

constexpr Duration kRemovePatience = 20ms;

std::string milliseconds(Duration patience) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()) +
         " ms";
}

Error not_frozen(const std::string& where, Duration patience) {
  return {Code::kDeadlineExceeded,
          "freeze " + where + ": not all of it stood still within " + milliseconds(patience)};
}

/// The numbers in a control group's cgroup.procs.
std::vector<pid_t> read_pids(const std::string& path) {
  const std::string text = read_small_file(path);
  std::vector<pid_t> pids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    pid_t pid = 0;
    const auto [next, error] = std::from_chars(at, end, pid);
    if (error == std::errc() && pid > 0) {
      pids.push_back(pid);
    }
    at = next + 1;
  }
  return pids;
}

void drop_zombies(std::vector<pid_t>& pids) {
  std::erase_if(pids, [](pid_t pid) {
    const auto facts = process_facts(pid);
    return !facts || facts->state == 'Z';
  });
}

/// A directory of a control group hierarchy, which goes with the object when it is empty.
class CgroupSet : public ProcessSet {
 public:
  CgroupSet(std::string directory, bool unified)
      : directory_(std::move(directory)), unified_(unified) {}
  ~CgroupSet() override {
    // The last process may be a zombie a moment before the kernel counts it out.
    const auto removed = [this] { return ::rmdir(directory_.c_str()) == 0 || errno != EBUSY; };
    (void)wait_until(removed, kRemovePatience);
  }
  CgroupSet(const CgroupSet&) = delete;
  CgroupSet& operator=(const CgroupSet&) = delete;

  [[nodiscard]] std::vector<pid_t> members() const override {
    std::vector<pid_t> pids = read_pids(directory_ + "/cgroup.procs");
    drop_zombies(pids);
    return pids;
  }

  Result<void> freeze(Duration patience) override {
    if (!tell(true)) {
      return cannot("freeze");
    }
    if (!wait_until([this] { return frozen() == true; }, patience)) {
      (void)tell(false);
      return not_frozen(directory_, patience);
    }
    return {};
  }

  Result<void> thaw(Duration patience) override {
    if (!tell(false)) {
      return cannot("thaw");
    }
    if (!wait_until([this] { return frozen() == false; }, patience)) {
      return Error{Code::kDeadlineExceeded,
                   "thaw " + directory_ + ": it still stood still after " + milliseconds(patience)};
    }
    return {};
  }

  void kill() override {
    if (unified_ && write_small_file(directory_ + "/cgroup.kill", "1")) {
      return;
    }
    for (const pid_t pid : members()) {
      (void)::kill(pid, SIGKILL);
    }
    (void)tell(false);  // The first version's freezer holds even this signal back.
  }

 private:
  bool tell(bool still) {
    return unified_ ? write_small_file(directory_ + "/cgroup.freeze", still ? "1" : "0")
                    : write_small_file(directory_ + "/freezer.state", still ? "FROZEN" : "THAWED");
  }

  /// Nothing while it is on the way.
  [[nodiscard]] std::optional<bool> frozen() const {
    if (unified_) {
      const std::string events = read_small_file(directory_ + "/cgroup.events");
      return events.find("frozen 1") != std::string::npos;
    }
    const std::string state = read_small_file(directory_ + "/freezer.state");
    if (state.starts_with("FREEZING")) {
      return std::nullopt;
    }
    return state.starts_with("FROZEN");
  }

  [[nodiscard]] Error cannot(const std::string& what) const {
    return {Code::kUnavailable, what + " " + directory_ + ": " + std::strerror(errno)};
  }

  std::string directory_;
  bool unified_;
};

/// Processes whose environment has the mark.
class MarkedSet : public ProcessSet {
 public:
  explicit MarkedSet(std::string mark) : mark_(std::move(mark)) {}

  [[nodiscard]] std::vector<pid_t> members() const override { return marked_processes(mark_); }

  /// They may have children while they are being stopped: it goes on until a look finds nobody who
  /// runs.
  Result<void> freeze(Duration patience) override {
    const auto all_stopped = [this] {
      bool all = true;
      for (const pid_t pid : members()) {
        if (!stopped(pid)) {
          (void)::kill(pid, SIGSTOP);
          all = false;
        }
      }
      return all;
    };
    if (!wait_until(all_stopped, patience)) {
      signal_all(SIGCONT);
      return not_frozen("the processes of " + mark_, patience);
    }
    return {};
  }

  Result<void> thaw(Duration) override {
    signal_all(SIGCONT);
    return {};
  }

  void kill() override {
    // Whoever is found may have had a child just before it was: look again until nobody is new.
    std::set<pid_t> killed;
    for (bool more = true; more;) {
      more = false;
      for (const pid_t pid : members()) {
        more = killed.insert(pid).second || more;
        (void)::kill(pid, SIGKILL);
      }
    }
  }

 private:
  static bool stopped(pid_t pid) {
    const auto facts = process_facts(pid);
    return !facts || facts->state == 'T' || facts->state == 'Z';
  }

  void signal_all(int signal) const {
    for (const pid_t pid : members()) {
      (void)::kill(pid, signal);
    }
  }

  std::string mark_;
};

/// Where this process is in the hierarchy that has `controller` (empty: the unified one), as a
/// directory; empty where there is none.
std::string own_cgroup(std::string_view controller) {
  std::string inside;
  const std::string groups = read_small_file("/proc/self/cgroup");
  for (std::size_t at = 0; at < groups.size();) {
    const std::size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);  // "6:freezer:/a/b"
    at = end + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string list = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? list == ",,"
                           : list.find("," + std::string(controller) + ",") != std::string::npos) {
      inside = line.substr(second + 1);
      break;
    }
  }
  if (inside.empty()) {
    return "";
  }
  const std::string root = "/sys/fs/cgroup";
  const std::array<std::string, 3> mounts = {
      controller.empty() ? root + "/unified" : root + "/" + std::string(controller), root, ""};
  for (const std::string& mount : mounts) {
    // In a container what the kernel says may lie above what is mounted.
    for (const std::string& below : {mount + (inside == "/" ? "" : inside), mount}) {
      const bool unified = ::access((below + "/cgroup.controllers").c_str(), F_OK) == 0;
      if (!mount.empty() && ::access((below + "/cgroup.procs").c_str(), F_OK) == 0 &&
          unified == controller.empty()) {
        return below;
      }
    }
  }
  return "";
}

}  // namespace

std::string_view name(Grouping grouping) {
  switch (grouping) {
    case Grouping::kCgroup2:
      return "cgroup v2";
    case Grouping::kCgroup1:
      return "cgroup v1 freezer";
    case Grouping::kMarked:
      return "environment and SIGSTOP";
  }
  return "?";
}

Result<OwnSet> make_process_set(Grouping grouping,
                                const std::string& label,
                                const std::string& mark) {
  if (grouping == Grouping::kMarked) {
    return OwnSet{.set = std::make_shared<MarkedSet>(mark)};
  }
  const bool unified = grouping == Grouping::kCgroup2;
  const std::string parent = own_cgroup(unified ? "" : "freezer");
  if (parent.empty()) {
    return Error{Code::kUnavailable,
                 "make a control group: there is no " + std::string(name(grouping)) + " here"};
  }
  const std::string directory = parent + "/" + label;
  constexpr mode_t kMode = 0755;
  if (::mkdir(directory.c_str(), kMode) != 0 && errno != EEXIST) {
    return Error{Code::kUnavailable, "make " + directory + ": " + std::strerror(errno)};
  }
  auto set = std::make_shared<CgroupSet>(directory, unified);
  const std::string freezer = directory + (unified ? "/cgroup.freeze" : "/freezer.state");
  if (::access(freezer.c_str(), W_OK) != 0) {
    return Error{Code::kUnavailable, "freeze by " + freezer + ": " + std::strerror(errno)};
  }
  return OwnSet{
      .set = std::move(set), .join_file = directory + "/cgroup.procs", .directory = directory};
}

Grouping best_grouping() {
  for (const Grouping grouping : {Grouping::kCgroup2, Grouping::kCgroup1}) {
    const std::string label = "heddle-trial-" + std::to_string(::getpid());
    const Result<OwnSet> made = make_process_set(grouping, label, label);
    // Whoever moves a process from one group to another must be allowed to in the one above both.
    if (made && ::access(made->join_file.c_str(), W_OK) == 0 &&
        ::access((made->directory + "/../cgroup.procs").c_str(), W_OK) == 0) {
      return grouping;
    }
  }
  return Grouping::kMarked;
}

Result<void> end_leftover(const std::string& directory,
                          const std::string& mark,
                          Duration patience) {
  MarkedSet marked(mark);
  std::optional<CgroupSet> group;
  if (!directory.empty() && ::access(directory.c_str(), F_OK) == 0) {
    group.emplace(directory, ::access((directory + "/cgroup.freeze").c_str(), F_OK) == 0);
  }
  const auto gone = [&] {
    if (group) {
      group->kill();
    }
    marked.kill();
    return marked.members().empty() && (!group || group->members().empty());
  };
  if (!wait_until(gone, patience)) {
    return Error{Code::kDeadlineExceeded,
                 "end what an earlier run left behind (" + mark + "): it still runs after " +
                     milliseconds(patience)};
  }
  return {};
}

}  // namespace heddle::external
