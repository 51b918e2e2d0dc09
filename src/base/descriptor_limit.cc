#include "base/descriptor_limit.h"

#include <filesystem>
#include <iterator>
#include <system_error>

#include <sys/resource.h>

namespace heddle {

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return descriptor_limit();
}

std::uint64_t descriptor_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

std::size_t open_descriptors() {
  std::error_code failure;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", failure), end; !failure && at != end;
       at.increment(failure)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // Without the one that this took.
}

}  // namespace heddle
