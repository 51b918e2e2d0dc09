#include "base/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace heddle {
namespace {

/// How a version of control groups calls what it knows of memory.
struct Names {
  const char* limit;
  const char* used;
  const char* idle_cache;  ///< In memory.stat: what is taken back first.
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file"};

std::optional<std::uint64_t> read_number(const std::filesystem::path& file) {
  std::uint64_t number = 0;
  return std::ifstream(file) >> number ? std::optional(number) : std::nullopt;
}

/// What follows `name` in a file of lines that begin with names.
std::optional<std::uint64_t> read_line(const std::filesystem::path& file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    std::uint64_t number = 0;
    if (words >> first && first == name) {
      return words >> number ? std::optional(number) : std::nullopt;
    }
  }
  return std::nullopt;
}

void limit_by(HostMemory& memory, const std::filesystem::path& group, const Names& names) {
  const auto limit = read_number(group / names.limit);  // "max" is no number.
  if (!limit) {
    return;
  }
  memory.total = std::min(memory.total, *limit);
  const std::uint64_t used = read_number(group / names.used).value_or(0);
  const std::uint64_t cache = read_line(group / "memory.stat", names.idle_cache).value_or(0);
  const std::uint64_t held = used - std::min(used, cache);
  const std::uint64_t left = *limit - std::min(*limit, held);
  if (left < memory.available) {
    memory.available = left;
    memory.group = group.string();
  }
}

/// By the group at `path` below `mount` and by all above it. A container may see its own group as
/// the mount, and the path as the host has it.
void limit_by_all(HostMemory& memory,
                  const std::filesystem::path& mount,
                  const std::filesystem::path& path,
                  const Names& names) {
  std::filesystem::path group = mount;
  limit_by(memory, group, names);
  for (const std::filesystem::path& part : path.relative_path()) {
    group /= part;
    limit_by(memory, group, names);
  }
}

bool has_memory(std::string_view controllers) {
  std::istringstream list{std::string(controllers)};
  for (std::string one; std::getline(list, one, ',');) {
    if (one == "memory") {
      return true;
    }
  }
  return false;
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  const std::filesystem::path top(root + "/");
  const std::filesystem::path known = top / "proc/meminfo";
  HostMemory memory{.total = read_line(known, "MemTotal:").value_or(0) << 10U,
                    .available = read_line(known, "MemAvailable:").value_or(0) << 10U};
  const std::filesystem::path mounts = top / "sys/fs/cgroup";
  std::ifstream groups(top / "proc/self/cgroup");
  // NUMBER:CONTROLLERS:PATH; of version 2 there are no controllers.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      limit_by_all(memory, mounts, path, kVersion2);
    } else if (has_memory(controllers)) {
      limit_by_all(memory, mounts / "memory", path, kVersion1);
    }
  }
  return memory;
}

}  // namespace heddle
