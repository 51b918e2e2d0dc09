#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What a source has of a model.
namespace heddle::fetch {

/// One file of a model, as its source has it.
struct Object {
  std::string name{};       ///< Below the model's folder: "config.json", "1_Pooling/config.json".
  std::string url{};        ///< Where it is read; of a folder of this machine: its path.
  std::uint64_t bytes = 0;  ///< Its size.
  std::string sha256{};     ///< Of its content, in hexadecimal; empty where the source says none.
  std::string git_sha1{};   ///< The id that git gives its content, likewise.
  /// What tells this content from a later one where there is no digest: an ETag as the server
  /// wrote it, or a date of HTTP's. Empty where the source says neither.
  std::string validator{};

  /// What stands for its content: a digest, else the validator. Empty where nothing does.
  [[nodiscard]] const std::string& identity() const {
    return !sha256.empty() ? sha256 : (!git_sha1.empty() ? git_sha1 : validator);
  }
  /// Whether its content can be checked.
  [[nodiscard]] bool has_digest() const { return !sha256.empty() || !git_sha1.empty(); }
  friend bool operator==(const Object&, const Object&) = default;
};

/// The bytes from `begin` to before `end`.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// All that a source has under one name.
struct Listing {
  std::string revision{};  ///< The commit, of a source that has such; else empty.
  std::vector<Object> objects{};
};

}  // namespace heddle::fetch
