#include "external/memory_meter.h"

#include <charconv>
#include <string>
#include <string_view>

#include "external/proc.h"

namespace heddle::external {

namespace {

/// The number of a line "Pss_File:   123 kB", in bytes; 0 where there is no such line.
std::uint64_t kilobytes(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) {
    return 0;
  }
  const std::size_t digits = text.find_first_of("0123456789", at + key.size());
  std::uint64_t value = 0;
  if (digits != std::string_view::npos) {
    std::from_chars(text.begin() + digits, text.end(), value);
  }
  return value << 10U;
}

}  // namespace

HostBytes host_bytes(const std::vector<pid_t>& pids) {
  HostBytes sum;
  for (const pid_t pid : pids) {
    const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/smaps_rollup");
    sum.total += kilobytes(text, "\nPss:");
    sum.file += kilobytes(text, "\nPss_File:");
  }
  return sum;
}

}  // namespace heddle::external
