#include "batches/line_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace heddle::batches {

namespace {

constexpr std::size_t kBufferBytes = 256U << 10U;

Error failed(const std::string& doing, const std::string& file) {
  return {.code = Code::kUnavailable, .message = doing + " " + file + ": " + std::strerror(errno)};
}

}  // namespace

void LineFile::Close::operator()(std::FILE* file) const {
  (void)std::fclose(file);
}

Result<LineFile> LineFile::open(const std::string& file, std::size_t most) {
  std::unique_ptr<std::FILE, Close> opened(std::fopen(file.c_str(), "rbe"));
  if (opened == nullptr) {
    return failed("open", file);
  }
  return LineFile(file, std::move(opened), most);
}

/// False at the end of the file.
Result<bool> LineFile::fill() {
  buffer_.resize(kBufferBytes);
  at_ = 0;
  const std::size_t got = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  buffer_.resize(got);
  if (got == 0 && std::ferror(file_.get()) != 0) {
    return failed("read", name_);
  }
  return got > 0;
}

Result<std::optional<FileLine>> LineFile::next() {
  FileLine line{.offset = offset_};
  for (;;) {
    if (at_ == buffer_.size()) {
      const Result<bool> more = fill();
      if (!more) {
        return more.error();
      }
      if (!*more) {
        return line.bytes > 0 ? std::optional(std::move(line)) : std::nullopt;
      }
    }
    const std::size_t end = buffer_.find('\n', at_);
    const std::size_t piece = std::min(end, buffer_.size()) - at_;
    line.text.append(buffer_, at_, std::min(piece, most_ - line.text.size()));
    line.bytes += piece;
    line.ended = end != std::string::npos;
    at_ += piece + (line.ended ? 1 : 0);
    offset_ += piece + (line.ended ? 1 : 0);
    if (line.ended) {
      return std::optional(std::move(line));
    }
  }
}

Result<std::string> read_piece(const std::string& file, std::uint64_t offset, std::uint64_t bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(std::fopen(file.c_str(), "rbe"),
                                                               &std::fclose);
  std::string text(bytes, '\0');
  if (opened == nullptr || ::fseeko(opened.get(), static_cast<off_t>(offset), SEEK_SET) != 0) {
    return failed("open", file);
  }
  if (std::fread(text.data(), 1, text.size(), opened.get()) != text.size()) {
    return Error{.code = Code::kUnavailable, .message = "read " + file + ": it is shorter"};
  }
  return text;
}

Result<void> append_to(const std::string& file, std::string_view text) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(std::fopen(file.c_str(), "abe"),
                                                         &std::fclose);
  if (opened == nullptr) {
    return failed("open", file);
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), opened.get()) == text.size();
  if (!written || std::fflush(opened.get()) != 0) {
    return failed("write", file);
  }
  return {};
}

}  // namespace heddle::batches
