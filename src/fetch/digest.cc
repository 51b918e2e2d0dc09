#include "fetch/digest.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"

#include <openssl/evp.h>

namespace heddle::fetch {
namespace {

constexpr std::uint64_t kBlockBytes = 4U << 20U;

/// One digest of what is added, part by part.
class Hash {
 public:
  explicit Hash(const EVP_MD* kind) {
    HEDDLE_CHECK(EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
  }
  void add(const void* data, std::size_t bytes) {
    HEDDLE_CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1);
  }
  std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned int count = 0;
    HEDDLE_CHECK(EVP_DigestFinal_ex(context_.get(), bytes.data(), &count) == 1);
    return hexadecimal({reinterpret_cast<const char*>(bytes.data()), count});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype([](EVP_MD_CTX* context) { EVP_MD_CTX_free(context); })>
      context_{EVP_MD_CTX_new()};
};

}  // namespace

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789abcdef"[byte >> 4U];
    text += "0123456789abcdef"[byte & 15U];
  }
  return text;
}

std::string sha256_of(std::string_view text) {
  Hash hash(EVP_sha256());
  hash.add(text.data(), text.size());
  return hash.finish();
}

Result<void> check_digest(const std::filesystem::path& path,
                          const Object& object,
                          const std::stop_token& stop) {
  if (!object.has_digest()) {
    return {};
  }
  const Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  const bool by_git = object.sha256.empty();
  Hash hash(by_git ? EVP_sha1() : EVP_sha256());
  if (by_git) {
    const std::string head = fmt::format("blob {}", object.bytes);
    hash.add(head.c_str(), head.size() + 1);  // With the zero at its end.
  }
  std::vector<std::byte> block(std::min(kBlockBytes, object.bytes));
  for (std::uint64_t at = 0; at < object.bytes; at += block.size()) {
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    const std::span part = std::span(block).first(std::min(block.size(), object.bytes - at));
    if (const Result<void> read = file->read(at, part); !read) {
      return read.error();
    }
    hash.add(part.data(), part.size());
  }
  const std::string& wanted = by_git ? object.git_sha1 : object.sha256;
  if (const std::string found = hash.finish(); found != wanted) {
    return Error{Code::kCorrupt,
                 fmt::format("{} came with {} {} where {} was promised",
                             object.name,
                             by_git ? "git's SHA-1" : "the SHA-256",
                             found,
                             wanted)};
  }
  return {};
}

}  // namespace heddle::fetch
