#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::batches {

/// A line of a file, without what ends it.
struct FileLine {
  std::string text{};        ///< Of a longer one, the first bytes.
  std::uint64_t offset = 0;  ///< Where it begins.
  std::uint64_t bytes = 0;   ///< All of it.
  bool ended = false;        ///< Something ends it, other than the file.
};

/// Reads a file line by line. Calls wait for the disk.
class LineFile {
 public:
  /// Keeps at most `most` bytes of a line. kUnavailable, naming the file, where it cannot be read.
  static Result<LineFile> open(const std::string& file, std::size_t most);

  /// The next line; nothing at the end.
  Result<std::optional<FileLine>> next();

 private:
  struct Close {
    void operator()(std::FILE* file) const;
  };
  LineFile(std::string name, std::unique_ptr<std::FILE, Close> file, std::size_t most)
      : name_(std::move(name)), file_(std::move(file)), most_(most) {}
  Result<bool> fill();

  std::string name_;
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t most_;
  std::string buffer_{};
  std::size_t at_ = 0;        ///< In the buffer.
  std::uint64_t offset_ = 0;  ///< Of what comes next, in the file.
};

/// A piece of a file. kUnavailable, naming it, where it is not all there.
Result<std::string> read_piece(const std::string& file, std::uint64_t offset, std::uint64_t bytes);

/// Adds to a file, which is made where it is missing. kUnavailable, naming it.
Result<void> append_to(const std::string& file, std::string_view text);

}  // namespace heddle::batches
