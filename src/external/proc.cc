#include "external/proc.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/descriptor.h"
#include "external/patience.h"
#include "external/process_set.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace heddle::external {

using namespace std::chrono_literals;

namespace {

/// What is to be read of it; nothing where it cannot be opened.
std::optional<std::string> read_whole(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return std::nullopt;
  }
  std::string text;
  constexpr std::size_t kChunk = 4096;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kChunk);
    const ssize_t got = ::read(file.get(), text.data() + had, kChunk);
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) {
      return text;
    }
  }
}

/// The fields of a process's "stat" from kFirstField on, as proc(5) counts them from 1.
constexpr std::size_t kFirstField = 3;
std::vector<std::string_view> stat_fields(const std::string& text) {
  // The name, in brackets, may hold anything, brackets too: fields are counted from behind it.
  const std::size_t close = text.rfind(')');
  std::vector<std::string_view> fields;
  std::string_view rest =
      close == std::string::npos ? "" : std::string_view(text).substr(close + 1);
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
    const std::size_t end = std::min(rest.find_first_of(" \n"), rest.size());
    if (end > 0) {
      fields.push_back(rest.substr(0, end));
    }
    rest.remove_prefix(end);
  }
  return fields;
}

std::uint64_t to_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.begin(), text.end(), number);
  return number;
}

/// In programs and in the kernel.
Duration time_on_core(const std::vector<std::string_view>& fields) {
  constexpr std::size_t kUserTime = 14 - kFirstField;
  constexpr std::size_t kKernelTime = 15 - kFirstField;
  constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;
  const std::uint64_t ticks = to_number(fields[kUserTime]) + to_number(fields[kKernelTime]);
  return Duration(static_cast<std::int64_t>(ticks * kNanosecondsPerSecond /
                                            static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK))));
}

/// Whether a process whose environment was empty may have one a moment later: the kernel gives it
/// its new memory, and its parent leave to go on after vfork, before it says where in that memory
/// the environment is.
bool is_on_its_way_to_a_program(pid_t pid) {
  const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  const std::vector<std::string_view> fields = stat_fields(text);
  constexpr std::size_t kMemory = 23 - kFirstField;  // Zombies and the kernel's threads have none.
  constexpr std::size_t kEnvironmentStart = 50 - kFirstField;
  constexpr std::size_t kEnvironmentEnd = 51 - kFirstField;
  if (fields.size() <= kEnvironmentEnd || to_number(fields[kMemory]) == 0) {
    return false;
  }
  const std::uint64_t end = to_number(fields[kEnvironmentEnd]);
  return end == 0 || end > to_number(fields[kEnvironmentStart]);  // It is there by now.
}

/// Longer than the kernel takes for that, on a busy machine too.
constexpr Duration kProgramPatience = 100ms;

/// The environment that the process was started with; empty where it has none or is not ours.
std::string environment_of(pid_t pid) {
  std::optional<std::string> all;
  const auto is_told = [&] {
    all = read_whole("/proc/" + std::to_string(pid) + "/environ");
    return !all || !all->empty() || !is_on_its_way_to_a_program(pid);
  };
  (void)wait_until(is_told, kProgramPatience);
  return std::move(all).value_or("");
}

}  // namespace

std::string read_small_file(const std::string& path) {
  return read_whole(path).value_or("");
}

bool write_small_file(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::optional<ProcessFacts> process_facts(pid_t pid) {
  const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  const std::vector<std::string_view> fields = stat_fields(text);
  constexpr std::size_t kStartTime = 22 - kFirstField;
  if (fields.size() <= kStartTime) {
    return std::nullopt;
  }
  return ProcessFacts{.state = fields[0][0],
                      .parent = static_cast<pid_t>(to_number(fields[1])),
                      .start_time = to_number(fields[kStartTime]),
                      .ran = time_on_core(fields)};
}

namespace {

/// The entries of a directory that are numbers, in order.
std::vector<pid_t> numbers_in(const std::string& path) {
  std::vector<pid_t> found;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) {
    return found;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone.
  for (const dirent* entry = ::readdir(directory); entry != nullptr; entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.begin(), name.end(), pid);
    if (error == std::errc() && end == name.end()) {
      found.push_back(pid);
    }
  }
  (void)::closedir(directory);
  std::sort(found.begin(), found.end());
  return found;
}

/// The process that traces this thread; 0: none.
std::uint64_t tracer_of(const std::string& thread) {
  constexpr std::string_view kKey = "TracerPid:\t";
  const std::string status = read_small_file(thread + "/status");
  const std::size_t at = status.find(kKey);
  return at == std::string::npos ? 0 : to_number(std::string_view(status).substr(at + kKey.size()));
}

/// How long the thread has run and waited for a core, in nanoseconds; nothing where the kernel does
/// not count.
std::optional<std::uint64_t> active_ns(const std::string& thread) {
  const std::string text = read_small_file(thread + "/schedstat");
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) {
    return std::nullopt;
  }
  return to_number(text) + to_number(std::string_view(text).substr(space + 1));
}

}  // namespace

std::vector<pid_t> all_processes() {
  return numbers_in("/proc");
}

std::optional<policy::ProcessSigns> process_signs(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const std::string text = read_small_file(process + "/stat");
  const std::vector<std::string_view> fields = stat_fields(text);
  constexpr std::size_t kKernelTime = 15 - kFirstField;
  if (fields.size() <= kKernelTime) {
    return std::nullopt;
  }
  policy::ProcessSigns signs{.state = fields[0][0]};
  std::uint64_t active = 0;
  bool counted = true;
  for (const pid_t id : numbers_in(process + "/task")) {
    const std::string thread = process + "/task/" + std::to_string(id);
    signs.traced = signs.traced || tracer_of(thread) != 0;
    const std::optional<std::uint64_t> ns = active_ns(thread);
    counted = counted && ns;
    active += ns.value_or(0);
  }
  signs.active = counted ? Duration(static_cast<std::int64_t>(active)) : time_on_core(fields);
  return signs;
}

Activity activity_of(const std::vector<pid_t>& pids) {
  Activity all;
  for (const pid_t pid : pids) {
    if (const std::optional<ProcessFacts> facts = process_facts(pid)) {
      all.stopped = all.stopped || facts->state == 'T';
      all.ran += facts->ran;
    }
  }
  return all;
}

bool has_in_environment(pid_t pid, const std::string& assignment) {
  const std::string all = environment_of(pid);
  const std::string wanted = assignment + '\0';
  for (std::size_t at = all.find(wanted); at != std::string::npos; at = all.find(wanted, at + 1)) {
    if (at == 0 || all[at - 1] == '\0') {
      return true;
    }
  }
  return false;
}

std::vector<pid_t> marked_processes(const std::string& mark) {
  const std::string assignment = std::string(kMarkVariable) + "=" + mark;
  std::vector<pid_t> found = all_processes();
  std::erase_if(found, [&](pid_t pid) {
    return pid == ::getpid() || !has_in_environment(pid, assignment);  // A zombie's is empty.
  });
  return found;
}

}  // namespace heddle::external
