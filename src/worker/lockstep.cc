#include "worker/lockstep.h"

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "base/siphash.h"
#include "core/codec.h"
#include "rpc/frame.h"

#include <sys/socket.h>

namespace heddle::worker {

namespace {

Result<void> send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      return Error{Code::kUnavailable,
                   std::string("tell another rank what to do: ") + std::strerror(errno)};
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

/// What a step did, but for the time it took.
std::uint64_t digest(const core::StepDone& done) {
  std::vector<std::uint64_t> words;
  const auto add = [&words](auto value) { words.push_back(static_cast<std::uint64_t>(value)); };
  for (const core::SliceDone& slice : done.slices) {
    add(slice.sequence.value());
    add(slice.computed);
    add(slice.token.value_or(-1));
    add(slice.position);
    add(slice.finish);
  }
  for (const core::SequenceId id : done.starved) {
    add(id.value());
  }
  for (const core::KvHeld& held : done.counted.kv) {
    add(held.pages);  // Of one model, whose name differs from rank to rank.
  }
  add(done.counted.cached_pages);
  return siphash(SipKey{}, std::as_bytes(std::span(words))).low;
}

}  // namespace

bool is_for_engine(const core::WorkerCommand& command) {
  return std::holds_alternative<core::AddSequence>(command) ||
         std::holds_alternative<core::TakePrefixes>(command) ||
         std::holds_alternative<core::TrimCached>(command) ||
         std::holds_alternative<core::PreemptSequence>(command) ||
         std::holds_alternative<core::RemoveSequence>(command) ||
         std::holds_alternative<core::RunStep>(command);
}

Result<void> Lockstep::pass_on(const core::WorkerCommand& command) {
  if (!is_for_engine(command)) {
    return {};
  }
  const std::string payload = core::encode(command);
  const auto header = rpc::encode_frame_header(payload.size(), 0);
  const std::string frame =
      std::string(reinterpret_cast<const char*>(header.data()), header.size()) + payload;
  for (const Descriptor& follower : followers_) {
    if (const Result<void> sent = send_all(follower.get(), frame); !sent) {
      return sent.error();
    }
  }
  return {};
}

Result<void> Lockstep::compare(const core::StepDone& done) {
  return group_->agree(digest(done));
}

}  // namespace heddle::worker
