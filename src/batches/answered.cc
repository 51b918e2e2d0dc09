#include "batches/answered.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "batches/line.h"
#include "batches/line_file.h"

namespace heddle::batches {

namespace {

constexpr std::size_t kIdBytes = 256;  ///< Enough of a line to tell which it is.

}  // namespace

Result<Answered> recover_answers(const std::string& file) {
  Answered answered;
  std::error_code failure;
  if (!std::filesystem::exists(file, failure)) {
    return answered;
  }
  Result<LineFile> lines = LineFile::open(file, kIdBytes);
  if (!lines) {
    return lines.error();
  }
  for (;;) {
    const Result<std::optional<FileLine>> line = lines->next();
    if (!line) {
      return line.error();
    }
    if (!*line || !(*line)->ended) {
      break;
    }
    answered.bytes = (*line)->offset + (*line)->bytes + 1;
    if (const std::optional<std::size_t> number = number_of((*line)->text)) {
      answered.lines.push_back(*number);
    }
  }
  std::filesystem::resize_file(file, answered.bytes, failure);
  if (failure) {
    return Error{.code = Code::kUnavailable,
                 .message = "shorten " + file + ": " + failure.message()};
  }
  return answered;
}

}  // namespace heddle::batches
