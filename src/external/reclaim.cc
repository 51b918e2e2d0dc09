#include "external/reclaim.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "external/memory_meter.h"
#include "external/proc.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace heddle::external {

namespace {

/// The ranges of a process that files back, by its /proc/PID/maps:
/// "7f..-7f.. r--p 00000000 08:01 1234   /path".
std::vector<iovec> file_mappings(std::string_view maps) {
  constexpr int kHex = 16;
  std::vector<iovec> ranges;
  while (!maps.empty()) {
    const std::size_t end = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    const std::size_t path = line.find('/');
    if (path == std::string_view::npos || line.substr(path).starts_with("/dev/") ||
        line.substr(path).starts_with("/memfd:") || line.substr(path).starts_with("/SYSV")) {
      continue;  // Devices have no pages of files; shared memory has nowhere to go.
    }
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    const auto [dash, bad_first] = std::from_chars(line.begin(), line.end(), first, kHex);
    if (bad_first != std::errc() || dash == line.end()) {
      continue;
    }
    const auto [rest, bad_last] = std::from_chars(dash + 1, line.end(), last, kHex);
    if (bad_last == std::errc() && last > first) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process.
      ranges.push_back({.iov_base = reinterpret_cast<void*>(first), .iov_len = last - first});
    }
  }
  return ranges;
}

/// The first error of a process that is there; 0: none.
int page_out(pid_t pid) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) {
    return errno == ESRCH ? 0 : errno;
  }
  int failure = 0;
  // One by one: a range that may not be paged out ends the call that it is part of.
  for (const iovec& range :
       file_mappings(read_small_file("/proc/" + std::to_string(pid) + "/maps"))) {
    iovec rest = range;
    while (rest.iov_len > 0) {
      const ssize_t done =
          ::syscall(SYS_process_madvise, process.get(), &rest, 1UL, MADV_PAGEOUT, 0U);
      if (done <= 0) {
        if (done < 0 && errno != EINVAL && errno != ESRCH && failure == 0) {
          failure = errno;  // EINVAL: locked, huge or special; such a range stays.
        }
        break;
      }
      const auto bytes = static_cast<std::size_t>(done);
      rest.iov_base = static_cast<std::byte*>(rest.iov_base) + bytes;
      rest.iov_len -= std::min(bytes, rest.iov_len);
    }
  }
  return failure;
}

}  // namespace

Result<std::uint64_t> give_back_file_pages(const std::vector<pid_t>& pids) {
  const std::uint64_t before = host_bytes(pids).file;
  int failure = 0;
  for (const pid_t pid : pids) {
    const int error = page_out(pid);
    failure = failure == 0 ? error : failure;
  }
  const std::uint64_t after = host_bytes(pids).file;
  if (failure != 0 && after >= before) {
    return Error{Code::kUnavailable,
                 std::string("give back pages of files by process_madvise: ") +
                     std::strerror(failure) + (failure == EPERM ? "; it needs CAP_SYS_NICE" : "")};
  }
  return before > after ? before - after : 0;
}

}  // namespace heddle::external
