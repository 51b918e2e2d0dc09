#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/gguf_file.h"

namespace heddle::gguf {

/// Reads typed fields of metadata. The first thing that is wrong is kept and later reads go on with
/// harmless values, as spec::JsonFields does for JSON. The file is borrowed.
class MetadataFields {
 public:
  explicit MetadataFields(const GgufFile& file) : file_(file) {}

  [[nodiscard]] bool has(std::string_view key) const { return file_.find(key) != nullptr; }

  /// Any of the integer types. Of an array, where all layers agree, its element. Without a fallback
  /// the key is required.
  std::int64_t integer(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt);
  /// A number as its shortest decimal; empty where the key is absent, or not finite.
  std::string decimal(std::string_view key);
  double number(std::string_view key, double fallback);
  bool boolean(std::string_view key, bool fallback);
  /// Empty when absent.
  std::string text(std::string_view key);
  /// The array, whose elements are of such a type and were kept; null where the key is absent.
  const Array* texts(std::string_view key);
  const Array* integers(std::string_view key);
  const Array* numbers(std::string_view key);

  /// Records that `key` is wrong: "FILE: key "K" is V; RIGHT". Only the first error is kept.
  void reject(std::string_view key, std::string_view right, Code code = Code::kCorrupt);
  void fail(Error error);

  [[nodiscard]] bool ok() const { return status_.has_value(); }
  [[nodiscard]] const Result<void>& status() const { return status_; }

 private:
  const Array* array(std::string_view key, std::string_view of, bool right, std::size_t kept);

  const GgufFile& file_;
  Result<void> status_{};
};

}  // namespace heddle::gguf
