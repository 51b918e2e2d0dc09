#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

#include <sys/types.h>

namespace heddle::external {

/// Gives the kernel back those pages of `pids` that files back (weights that were mapped,
/// programs): they are read again when they are touched. Anonymous memory stays, but for what the
/// kernel may swap. Blocks for as long as the kernel takes. Returns how many bytes were taken out
/// [bytes].
///
/// process_madvise(MADV_PAGEOUT), which needs Linux 5.10 and, for processes of others,
/// CAP_SYS_NICE. Pages that other processes map too stay. kUnavailable where the kernel lets us do
/// none of it.
[[nodiscard]] Result<std::uint64_t> give_back_file_pages(const std::vector<pid_t>& pids);

}  // namespace heddle::external
