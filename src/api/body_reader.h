#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "base/ids.h"

#include <simdjson.h>

namespace heddle::api {

/// Inclusive bounds of a number.
struct Bounds {
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
};

/// Reads typed fields of one JSON object that a client sent. The first thing that is wrong is kept;
/// later reads then give nothing. Null counts as absent, and a key that occurs twice is wrong. Keys
/// that are asked for outlive the reader: they are literals.
class BodyReader {
 public:
  /// Parses `body`, which must be an object. The reader holds the parsed document.
  explicit BodyReader(std::string_view body);

  [[nodiscard]] std::optional<simdjson::dom::element> find(std::string_view key);

  [[nodiscard]] std::optional<std::string> text(std::string_view key);
  /// A name: a string that must be there and not be empty, of up to 1,024 bytes.
  [[nodiscard]] std::string required_text(std::string_view key, std::string_view example);
  [[nodiscard]] std::optional<bool> flag(std::string_view key);
  [[nodiscard]] std::optional<double> number(std::string_view key, Bounds bounds);
  /// A whole number within bounds that a double holds exactly.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key,
                                                    std::int64_t least,
                                                    std::int64_t most);
  /// Token ids; each from 0 to 2^31 - 1.
  [[nodiscard]] std::vector<TokenId> tokens(std::string_view key, simdjson::dom::element list);

  /// Refuses fields that are known but not implemented, unless they ask for nothing: null, false,
  /// zero, "" or an empty list or object.
  void refuse_unless_neutral(std::initializer_list<std::string_view> keys);

  /// The same of numbers of which another value than zero asks for nothing.
  void refuse_unless(std::string_view key, double neutral);

  /// Warns of what nobody holds answers to in a JSON schema.
  void warn_of_schema(const std::string& where, std::string_view schema);
  /// Something that was not done as asked, and harms nobody. At most 16 are kept.
  void warn(std::string warning);
  /// Warns of fields that nobody has asked for, with the name that was probably meant, and takes
  /// all warnings. Fields of `harmless` are known, and mean nothing here.
  [[nodiscard]] std::vector<std::string> take_warnings(
      std::initializer_list<std::string_view> harmless = {});

  /// `key` is wrong: the message is "key: is <value>; want <want>".
  void reject(std::string_view key, simdjson::dom::element value, std::string_view want);
  void fail(ApiError error);

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  /// What is wrong; only if not ok().
  [[nodiscard]] ApiError error() const { return *error_; }

 private:
  simdjson::dom::parser parser_{};
  simdjson::dom::object object_{};
  std::optional<ApiError> error_{};
  std::vector<std::string> asked_{};  ///< Keys, some of them several times.
  std::vector<std::string> warnings_{};
};

/// The value as it may stand in a message.
[[nodiscard]] std::string describe(simdjson::dom::element value);

}  // namespace heddle::api
