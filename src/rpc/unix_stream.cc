#include "rpc/unix_stream.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <sys/socket.h>

namespace heddle::rpc {

namespace {

/// Ancillary data large enough for the descriptors of one frame.
union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int) * kFrameDescriptorsMax)];
};

/// Of a call that has moved nothing and set errno.
Stream::Moved not_moved(const char* what, Stream::Socket::wait_type until) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return {.until = until};
  }
  return {.end = Error{Code::kUnavailable, std::string(what) + std::strerror(errno)}};
}

void put_descriptors(std::span<const Descriptor> descriptors, Control& control, msghdr& message) {
  const std::size_t bytes = sizeof(int) * descriptors.size();
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    const int fd = descriptors[i].get();
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
  }
}

void take_descriptors(msghdr& message, FrameDecoder& decoder) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      decoder.add(Descriptor(fd));
    }
  }
}

class UnixStream final : public Stream {
 public:
  UnixStream(const boost::asio::any_io_executor& executor, Descriptor socket) : socket_(executor) {
    boost::system::error_code error;
    socket_.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), socket.get(), error);
    HEDDLE_CHECK(!error);
    (void)socket.release();
  }

  Socket& socket() override { return socket_; }
  [[nodiscard]] bool carries_descriptors() const override { return true; }

  Moved send(std::span<const std::byte> head,
             std::string_view body,
             std::span<const Descriptor> descriptors) override {
    // sendmsg writes to none of these, though its types say that it may.
    // NOLINTBEGIN(cppcoreguidelines-pro-type-const-cast)
    std::array<iovec, 2> parts{};
    parts[0] = {const_cast<std::byte*>(head.data()), head.size()};
    parts[1] = {const_cast<char*>(body.data()), body.size()};
    // NOLINTEND(cppcoreguidelines-pro-type-const-cast)
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    Control control{};
    if (!descriptors.empty()) {
      put_descriptors(descriptors, control, message);
    }
    ssize_t sent = 0;
    do {
      sent = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
      return not_moved("send to peer: ", Socket::wait_write);
    }
    return {.bytes = static_cast<std::size_t>(sent)};
  }

  Moved receive(std::span<std::byte> buffer, FrameDecoder& decoder) override {
    iovec part{buffer.data(), buffer.size()};
    Control control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    ssize_t received = 0;
    do {
      received = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received == 0) {
      return {.end = Error{Code::kUnavailable, "the peer has closed the link"}};
    }
    if (received < 0) {
      return not_moved("receive from peer: ", Socket::wait_read);
    }
    take_descriptors(message, decoder);
    return {.bytes = static_cast<std::size_t>(received)};
  }

  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<Stream> unix_stream(const boost::asio::any_io_executor& executor,
                                    Descriptor socket) {
  return std::make_unique<UnixStream>(executor, std::move(socket));
}

}  // namespace heddle::rpc
