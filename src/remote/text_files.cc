#include "remote/text_files.h"

#include <system_error>
#include <utility>

#include "remote/messages.h"

namespace heddle::remote {

Result<TextPiece> read_piece(const std::filesystem::path& file, std::uint64_t offset) {
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  TextPiece piece;
  piece.bytes.resize(kTextPieceMost);
  in.read(piece.bytes.data(), static_cast<std::streamsize>(piece.bytes.size()));
  if (in.bad() || (!in && !in.eof())) {
    return Error{.code = Code::kNotFound,
                 .message = "read " + file.string() + " from byte " + std::to_string(offset) +
                            ": it is not there, or cannot be read"};
  }
  piece.bytes.resize(static_cast<std::size_t>(in.gcount()));
  piece.ends = piece.bytes.size() < kTextPieceMost;
  return piece;
}

Result<TextPiece> read_piece(const store::TextSource& source, std::uint64_t offset) {
  if (source.made == nullptr) {
    return read_piece(source.path, offset);
  }
  const std::string& text = *source.made;
  TextPiece piece;
  if (offset < text.size()) {
    piece.bytes = text.substr(static_cast<std::size_t>(offset), kTextPieceMost);
  }
  piece.ends = piece.bytes.size() < kTextPieceMost;
  return piece;
}

TextFolder::TextFolder(std::filesystem::path folder)
    : folder_(std::move(folder)), part_(folder_.string() + ".part") {}

TextFolder::~TextFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(part_, ignored);
}

Result<void> TextFolder::add(const std::string& name, const std::string& bytes, bool ends) {
  if (!is_file_name(name) || (!name_.empty() && name != name_)) {
    return Error{.code = Code::kCorrupt,
                 .message =
                     "a piece of a file that is not the next; want files one after the "
                     "other, with names without a slash and a dot first"};
  }
  bytes_ += bytes.size();
  if (bytes_ > kTextBytesMost || files_ == kTextFilesMost) {
    return Error{.code = Code::kCorrupt,
                 .message = "more than " + std::to_string(kTextFilesMost) + " files, or " +
                            std::to_string(kTextBytesMost) + " bytes of them"};
  }
  std::error_code failure;
  if (files_ == 0 && name_.empty()) {
    std::filesystem::remove_all(part_, failure);
    std::filesystem::create_directories(part_, failure);
  }
  const std::filesystem::path path = part_ / name;
  if (std::exchange(name_, name).empty()) {
    file_.open(path, std::ios::binary | std::ios::trunc);
  }
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (ends) {
    file_.close();
    name_.clear();
    ++files_;
  }
  if (!file_) {
    return Error{.code = Code::kUnavailable, .message = "write " + path.string() + ": it failed"};
  }
  return {};
}

Result<void> TextFolder::finish() {
  if (!name_.empty() || files_ == 0) {
    return Error{.code = Code::kCorrupt, .message = "the files end before the last is complete"};
  }
  std::error_code failure;
  std::filesystem::remove_all(folder_, failure);
  std::filesystem::rename(part_, folder_, failure);
  if (failure) {
    return Error{.code = Code::kUnavailable,
                 .message = "rename " + part_.string() + ": " + failure.message()};
  }
  return {};
}

}  // namespace heddle::remote
