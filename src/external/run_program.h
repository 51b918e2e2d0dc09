#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace heddle::external {

/// Runs a program to its end and returns what it wrote to stdout (at most 1 MiB). For the tools of
/// containers. Blocks: not for the loop. kUnavailable, with the last of what it wrote to stderr,
/// where it cannot be run or its status is not 0; kDeadlineExceeded, having killed it, after
/// `patience`.
[[nodiscard]] Result<std::string> run_program(const std::vector<std::string>& argv,
                                              Duration patience);

}  // namespace heddle::external
