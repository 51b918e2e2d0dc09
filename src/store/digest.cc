#include "store/digest.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "gguf/gguf_file.h"
#include "store/safetensors.h"
#include "store/text_files.h"

#include <openssl/evp.h>

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTextBytesMax = 64U << 20U;

class Sha256 {
 public:
  Sha256() { HEDDLE_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1); }

  /// Adds a text and where it ends, so that "ab", "c" is not "a", "bc".
  void add(std::string_view text) {
    const std::uint64_t size = text.size();
    std::array<unsigned char, 8> head{};
    for (std::size_t i = 0; i < head.size(); ++i) {
      head.at(i) = static_cast<unsigned char>(size >> (8 * i));
    }
    HEDDLE_CHECK(EVP_DigestUpdate(context_.get(), head.data(), head.size()) == 1);
    HEDDLE_CHECK(EVP_DigestUpdate(context_.get(), text.data(), text.size()) == 1);
  }

  [[nodiscard]] std::string hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned int count = 0;
    HEDDLE_CHECK(EVP_DigestFinal_ex(context_.get(), bytes.data(), &count) == 1);
    std::string text;
    for (const unsigned char byte : std::span(bytes).first(count)) {
      text += "0123456789abcdef"[byte >> 4U];
      text += "0123456789abcdef"[byte & 15U];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype([](EVP_MD_CTX* context) { EVP_MD_CTX_free(context); })>
      context_{EVP_MD_CTX_new()};
};

Result<std::string> header_of(const fs::path& path) {
  const Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  std::array<std::byte, 8> length{};
  if (const Result<void> read = file->read(0, length); !read) {
    return read.error();
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < length.size(); ++i) {
    bytes |= static_cast<std::uint64_t>(length.at(i)) << (8 * i);
  }
  if (bytes > kHeaderBytesMax) {
    return Error{Code::kCorrupt,
                 path.string() + ": a header of " + std::to_string(bytes) + " bytes"};
  }
  std::string header(static_cast<std::size_t>(bytes), '\0');
  if (const Result<void> read = file->read(8, std::as_writable_bytes(std::span(header))); !read) {
    return read.error();
  }
  return std::to_string(file->bytes()) + ":" + header;
}

/// Size and header of a part of a GGUF file.
Result<std::string> gguf_header_of(const fs::path& path) {
  const Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  const gguf::ReadAt read = [&file](std::uint64_t offset, std::span<std::byte> target) {
    return file->read(offset, target);
  };
  const Result<gguf::Header> header =
      gguf::parse_header(read, file->bytes(), path.string(), gguf::Keep::kSmall);
  if (!header) {
    return header.error();
  }
  std::string bytes(static_cast<std::size_t>(header->bytes), '\0');
  if (const Result<void> got = file->read(0, std::as_writable_bytes(std::span(bytes))); !got) {
    return got.error();
  }
  return std::to_string(file->bytes()) + ":" + bytes;
}

Result<std::string> digest_of_file(const fs::path& path) {
  Sha256 sha;
  for (const fs::path& part : gguf::part_paths(path)) {
    const Result<std::string> said = gguf_header_of(part);
    if (!said) {
      return said.error();
    }
    sha.add(*said);
  }
  return sha.hexadecimal();
}

Result<std::string> digest_of_directory(const fs::path& directory) {
  Result<std::vector<fs::path>> texts = text_files(directory);
  if (!texts) {
    return texts.error();
  }
  std::vector<fs::path> files = std::move(*texts);
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->path().extension() == ".safetensors") {
      files.push_back(at->path());
    }
  }
  if (failure) {
    return Error{Code::kNotFound, directory.string() + ": " + failure.message()};
  }
  std::ranges::sort(files);
  Sha256 sha;
  for (const fs::path& file : files) {
    const Result<std::string> said =
        file.extension() == ".safetensors" ? header_of(file) : read_text(file, kTextBytesMax);
    if (!said) {
      return said.error();
    }
    sha.add(file.filename().string());
    sha.add(*said);
  }
  return sha.hexadecimal();
}

}  // namespace

Result<std::string> digest(const fs::path& model) {
  return gguf::is_gguf(model) ? digest_of_file(model) : digest_of_directory(model);
}

}  // namespace heddle::store
