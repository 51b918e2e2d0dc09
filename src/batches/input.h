#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "batches/line.h"

namespace heddle::batches {

inline constexpr std::size_t kLinesMax = 50'000;

/// Where the lines of a batch's file are, and whom they ask.
struct Input {
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;  ///< 0: the line is not to be asked.
    std::uint32_t model = 0;  ///< Its index in `models`.
  };
  std::vector<Entry> lines{};         ///< By number; those without anything in them are none.
  std::vector<std::string> models{};  ///< Names that lines have.
};

/// Looks at all lines of `file`; calls `on_fault` for each that is wrong: it is no JSON, is for
/// another endpoint, has the `custom_id` of an earlier one, or more bytes than kLineBytesMax.
/// kInvalidArgument for a file without lines or with more than kLinesMax, kUnavailable where it
/// cannot be read.
Result<Input> look_through(
    const std::string& file,
    const std::string& endpoint,
    const std::function<void(std::size_t, const std::string&, const Fault&)>& on_fault);

}  // namespace heddle::batches
