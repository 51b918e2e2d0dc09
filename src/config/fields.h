#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"

namespace heddle::config {

/// Name and meaning of a configuration key.
struct Key {
  std::string_view name;
  std::string_view about;  ///< One sentence, shown by editors.
};

/// Inclusive bounds of an integer.
struct Range {
  std::int64_t least = 0;
  std::int64_t most = INT64_MAX;
};

/// How a section of the configuration is declared: a function names each key once, with the
/// variable it sets, and is then run by a reader (which sets the variables and refuses what was not
/// named) and by the schema writer (which writes down the names, types and meanings). Variables
/// keep their value where a key is absent, so that what they hold before is the default.
class Fields {
 public:
  virtual ~Fields() = default;

  virtual void flag(Key key, bool& value) = 0;
  virtual void integer(Key key, Range range, std::int64_t& value) = 0;
  /// A number from 0 to 1.
  virtual void fraction(Key key, double& value) = 0;
  virtual void text(Key key, std::string& value) = 0;
  /// One of `names`; `value` becomes its index.
  virtual void choice(Key key, const std::vector<std::string_view>& names, std::size_t& value) = 0;
  /// A size such as 64MiB.
  virtual void bytes(Key key, std::uint64_t& value) = 0;
  /// Bytes per second, such as 50MB/s.
  virtual void rate(Key key, std::uint64_t& value) = 0;
  /// A time such as 20ms.
  virtual void duration(Key key, Duration& value) = 0;
  /// A time, or a plain number of seconds; -1 is as if the key were absent.
  virtual void seconds(Key key, Duration& value) = 0;
  /// A file name, made absolute from the folder of the configuration file.
  virtual void path(Key key, std::string& value) = 0;
  /// One string or a list of them.
  virtual void texts(Key key, std::vector<std::string>& value) = 0;
  /// One string, or a list of strings and of maps with fixed keys: each string is `plain`, each map
  /// is declared.
  virtual void entries(Key key,
                       const std::function<void(const std::string& text)>& plain,
                       const std::function<void(Fields&)>& declare) = 0;
  /// A command line: a list of words, or a string that is split as a shell would.
  virtual void command(Key key, std::vector<std::string>& value) = 0;
  /// A map from names of the user's choice to strings.
  virtual void named_texts(Key key, std::vector<std::pair<std::string, std::string>>& value) = 0;
  /// A map from names of the user's choice to anything, as JSON texts.
  virtual void values(Key key, std::vector<std::pair<std::string, std::string>>& value) = 0;

  using Declare = std::function<void(Fields&)>;
  using DeclareNamed = std::function<void(const std::string& name, Fields&)>;
  /// A map with fixed keys.
  virtual void section(Key key, const Declare& declare) = 0;
  /// A list of such maps.
  virtual void sections(Key key, const Declare& declare) = 0;
  /// A map from names of the user's choice to such maps.
  virtual void named_sections(Key key, const DeclareNamed& declare) = 0;

  /// The key must be there; `why` completes "is missing: ".
  virtual void require(std::string_view key, std::string_view why) = 0;
  /// Likewise one of them; the first is the one that is missed.
  virtual void require_one(const std::vector<std::string_view>& keys, std::string_view why) = 0;
  /// Keys that others' files have and that are read over, with a warning; `why` follows the name.
  virtual void ignore(const std::vector<std::string_view>& keys, std::string_view why) = 0;
  /// Whether the section has the key.
  [[nodiscard]] virtual bool has(std::string_view key) const = 0;
  /// A value was well formed but cannot be meant; `problem` follows the name of the key.
  virtual void reject(std::string_view key, const std::string& problem) = 0;
  /// It can be meant, but will not do what was hoped for.
  virtual void warn(std::string_view key, const std::string& warning) = 0;
};

/// Refuses a time that the section has and that is not more than 0.
inline void require_positive(Fields& f, std::string_view key, Duration value) {
  if (f.has(key) && value <= Duration{}) {
    f.reject(key, "must be more than 0");
  }
}

}  // namespace heddle::config
