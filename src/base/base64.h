#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// RFC 4648's base64, with its padding.
[[nodiscard]] std::string to_base64(std::string_view bytes);
/// The bytes; nothing where the text is not what to_base64() makes.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace heddle
