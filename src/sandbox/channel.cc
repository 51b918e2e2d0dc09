#include "sandbox/channel.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

namespace heddle::sandbox {

namespace {

bool would_block(ssize_t moved) {
  return moved < 0 && (errno == EAGAIN || errno == EINTR);
}

bool receive_all(int socket, char* data, std::size_t size, const Wait& wait) {
  while (size > 0) {
    const ssize_t moved = ::recv(socket, data, size, MSG_DONTWAIT);
    if (moved > 0) {
      data += moved;
      size -= static_cast<std::size_t>(moved);
    } else if (!would_block(moved) || !wait(socket, POLLIN)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool send_message(int socket, std::string_view message, const Wait& wait) {
  const std::uint64_t length = message.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += message;
  std::string_view left = bytes;
  while (!left.empty()) {
    const ssize_t moved = ::send(socket, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved > 0) {
      left.remove_prefix(static_cast<std::size_t>(moved));
    } else if (!would_block(moved) || !wait(socket, POLLOUT)) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> receive_message(int socket, const Wait& wait) {
  std::uint64_t length = 0;
  if (!receive_all(socket, reinterpret_cast<char*>(&length), sizeof(length), wait) ||
      length > kMessageBytesMax) {
    return std::nullopt;
  }
  std::string message(static_cast<std::size_t>(length), '\0');
  if (!receive_all(socket, message.data(), message.size(), wait)) {
    return std::nullopt;
  }
  return message;
}

bool wait_for_ever(int socket, short events) {
  pollfd ready{.fd = socket, .events = events, .revents = 0};
  return ::poll(&ready, 1, -1) > 0 || errno == EINTR;
}

}  // namespace heddle::sandbox
