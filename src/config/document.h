#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace heddle::config {

/// One value of a YAML or JSON document, with the line it stands on. Scalars stay text: what they
/// mean is decided by whoever asks, so YAML's guesses (`no`, `1e3`, `08`) never matter.
struct Node {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;         ///< From 1.
  std::string key{};    ///< Name within the map that holds it; empty elsewhere.
  std::string text{};   ///< Of a scalar, after interpolation.
  bool quoted = false;  ///< A scalar that stood in quotes or is a block of lines: a string.
  std::vector<Node> children{};  ///< Of a list or map, in order; keys of a map are distinct.
};

/// A value as JSON. Of scalars, those that are not quoted are numbers, booleans or null where they
/// look so.
[[nodiscard]] std::string to_json(const Node& node);

/// The value of an environment variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process.
[[nodiscard]] std::optional<std::string> process_environment(const std::string& name);

/// Parses `text`, putting `${env.NAME}` in place within scalars. `origin` is the name of the file,
/// for messages. kInvalidArgument, with file and line, for broken syntax, a key that occurs twice,
/// a variable that is not set, or a document that is nested or aliased beyond reason.
Result<Node> parse_document(std::string_view text,
                            const std::string& origin,
                            const Environment& environment);

}  // namespace heddle::config
