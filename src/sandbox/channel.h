#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::sandbox {

/// The longest message; a longer one is taken for a peer that is not what it was.
inline constexpr std::size_t kMessageBytesMax = std::size_t{1} << 20U;

/// Waits until the socket can be read, or else written; false gives the transfer up.
using Wait = std::function<bool(int socket, short events)>;

/// Sends one message, with its length before it; false where the peer has gone, or `wait` gave up.
[[nodiscard]] bool send_message(int socket, std::string_view message, const Wait& wait);
/// Receives one; nothing where the peer has gone or talks nonsense, or `wait` gave up.
[[nodiscard]] std::optional<std::string> receive_message(int socket, const Wait& wait);

/// Waits however long that takes.
[[nodiscard]] bool wait_for_ever(int socket, short events);

}  // namespace heddle::sandbox
