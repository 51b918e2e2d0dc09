#include "worker/peer_wire.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

namespace heddle::worker {

namespace {

/// More pieces than a slot has of the smallest pages there are (4 KiB) make no request.
constexpr std::size_t kPiecesMax = kPeerSlotBytes / 4096 + 2;
constexpr std::size_t kHeadWords = 3;
constexpr std::size_t kPieceWords = 3;
using Words = std::vector<std::uint64_t>;

Error failure(const char* attempt) {
  return {Code::kUnavailable, std::string(attempt) + ": " + std::strerror(errno)};
}

Result<void> send_words(const Descriptor& socket, Words words, const Descriptor* beside) {
  iovec part{.iov_base = words.data(), .iov_len = words.size() * sizeof(words[0])};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (beside != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = beside->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) {
      return failure("tell another worker");
    }
  }
  return {};
}

/// The words of the next packet, of at most `most`.
Result<Words> receive_words(const Descriptor& socket, std::size_t most, Descriptor* beside) {
  Words words(most);
  iovec part{.iov_base = words.data(), .iov_len = words.size() * sizeof(words[0])};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t bytes = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  while (bytes < 0 && errno == EINTR) {
    bytes = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  }
  if (bytes < 0) {
    return failure("hear another worker");
  }
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    Descriptor came(fd);
    if (beside != nullptr) {
      *beside = std::move(came);
    }
  }
  if (bytes == 0) {
    return Error{Code::kUnavailable, "hear another worker: it is gone"};
  }
  if (static_cast<std::size_t>(bytes) % sizeof(words[0]) != 0 ||
      (message.msg_flags & MSG_TRUNC) != 0) {
    return Error{Code::kCorrupt, "another worker said what cannot be read"};
  }
  words.resize(static_cast<std::size_t>(bytes) / sizeof(words[0]));
  return words;
}

Error nonsense() {
  return {Code::kCorrupt, "another worker asked for what cannot be"};
}

/// A packet of a head's words, of whoever says something within `wait`.
Result<Words> await_words(const Descriptor& socket, Duration wait, Descriptor& beside) {
  pollfd waiting{.fd = socket.get(), .events = POLLIN, .revents = 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  int ready = ::poll(&waiting, 1, static_cast<int>(ms));
  while (ready < 0 && errno == EINTR) {
    ready = ::poll(&waiting, 1, static_cast<int>(ms));
  }
  if (ready <= 0) {
    return Error{Code::kUnavailable, "hear another worker: it says nothing"};
  }
  return receive_words(socket, kHeadWords, &beside);
}

}  // namespace

Result<void> send_request(const Descriptor& socket, const PeerRequest& request) {
  Words words{static_cast<std::uint64_t>(request.ask), request.slot, request.pieces.size()};
  for (const HostPiece& piece : request.pieces) {
    words.insert(words.end(), {piece.page.value(), piece.offset, piece.bytes});
  }
  return send_words(socket, std::move(words), nullptr);
}

Result<PeerRequest> receive_request(const Descriptor& socket) {
  const Result<Words> words = receive_words(socket, kHeadWords + kPiecesMax * kPieceWords, nullptr);
  if (!words) {
    return words.error();
  }
  const bool whole = words->size() >= kHeadWords && (*words)[2] <= kPiecesMax &&
                     words->size() == kHeadWords + (*words)[2] * kPieceWords;
  if (!whole || (*words)[0] > static_cast<std::uint64_t>(PeerAsk::kEnd) ||
      (*words)[1] >= kPeerSlots) {
    return nonsense();
  }
  PeerRequest request{.ask = static_cast<PeerAsk>((*words)[0]),
                      .slot = static_cast<std::uint32_t>((*words)[1])};
  std::uint64_t room = kPeerSlotBytes;
  for (std::size_t at = kHeadWords; at < words->size(); at += kPieceWords) {
    const HostPiece piece{
        .page = PageId((*words)[at]), .offset = (*words)[at + 1], .bytes = (*words)[at + 2]};
    if (piece.bytes > room) {
      return nonsense();
    }
    room -= piece.bytes;
    request.pieces.push_back(piece);
  }
  return request;
}

Result<void> send_reply(const Descriptor& socket,
                        const PeerReply& reply,
                        const Descriptor* beside) {
  return send_words(
      socket, {static_cast<std::uint64_t>(reply.answer), reply.slot, reply.bytes}, beside);
}

Result<PeerReply> receive_reply(const Descriptor& socket, Duration wait, Descriptor& beside) {
  const Result<Words> words = await_words(socket, wait, beside);
  if (!words) {
    return words.error();
  }
  if (words->size() != kHeadWords ||
      (*words)[0] > static_cast<std::uint64_t>(PeerAnswer::kFetched) || (*words)[1] >= kPeerSlots) {
    return nonsense();
  }
  return PeerReply{.answer = static_cast<PeerAnswer>((*words)[0]),
                   .slot = static_cast<std::uint32_t>((*words)[1]),
                   .bytes = (*words)[2]};
}

Result<void> send_memory(const Descriptor& socket,
                         const RankMemory& memory,
                         const Descriptor* beside) {
  return send_words(socket, {static_cast<std::uint64_t>(memory.gpu), memory.bytes, 0}, beside);
}

Result<RankMemory> receive_memory(const Descriptor& socket, Duration wait, Descriptor& beside) {
  const Result<Words> words = await_words(socket, wait, beside);
  if (!words) {
    return words.error();
  }
  if (words->size() != kHeadWords || (*words)[0] > std::numeric_limits<int>::max() ||
      ((*words)[1] > 0) != static_cast<bool>(beside)) {
    return nonsense();
  }
  return RankMemory{.gpu = static_cast<int>((*words)[0]), .bytes = (*words)[1]};
}

}  // namespace heddle::worker
