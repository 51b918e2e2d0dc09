#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "spec/json.h"

namespace heddle::spec {

/// Both ends belong to the range.
struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
};
struct NumberRange {
  double least;
  double most;
};

/// Reads typed, range-checked fields of one JSON object. The first thing that is wrong is kept and
/// later reads go on with harmless values, so that a reader is a list of assignments and looks at
/// status() once, at its end. A field that is null counts as absent.
class JsonFields {
 public:
  /// `where` begins every message: "config.json: " or "config.json: rope_scaling.". Both arguments
  /// are borrowed (`where` copied).
  JsonFields(const Json& object, std::string where);

  /// The field unless absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  /// Whether the field is there, null or not, and whether it is there and null: for the few whose
  /// absence means a default and whose null means nothing at all.
  [[nodiscard]] bool has(std::string_view key) const { return object_.find(key) != nullptr; }
  [[nodiscard]] bool is_null(std::string_view key) const {
    return has(key) && find(key) == nullptr;
  }

  /// Without a fallback the field is required.
  std::int64_t integer(std::string_view key,
                       IntegerRange range,
                       std::optional<std::int64_t> fallback = std::nullopt);
  double number(std::string_view key,
                NumberRange range,
                std::optional<double> fallback = std::nullopt);
  bool boolean(std::string_view key, bool fallback);
  /// Empty when absent.
  std::string text(std::string_view key);

  /// Records that `key` is wrong: "<where><key> is <value>; <right>". Only the first one is kept.
  void reject(std::string_view key, std::string_view right);
  /// The same for a part of the field, or with its value written out.
  void reject_as(std::string_view key, std::string_view value, std::string_view right);
  /// Keeps the error of a reader of a part, if this has none yet.
  void adopt(const JsonFields& part);

  [[nodiscard]] bool ok() const { return status_.has_value(); }
  [[nodiscard]] const Result<void>& status() const { return status_; }

 private:
  void fail(std::string message);

  const Json& object_;
  std::string where_;
  Result<void> status_{};
};

}  // namespace heddle::spec
