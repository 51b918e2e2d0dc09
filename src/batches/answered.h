#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::batches {

/// Lines that stand in a file of answers or of errors.
struct Answered {
  std::vector<std::size_t> lines{};  ///< By their numbers, in the order of the file.
  std::uint64_t bytes = 0;           ///< Of the whole lines.
};

/// Reads which lines have an answer in `file`, and takes off what a process that was killed had not
/// written whole. A file that is missing has none. kUnavailable where that cannot be done.
Result<Answered> recover_answers(const std::string& file);

}  // namespace heddle::batches
