#include "worker/peer_load.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/log.h"

#include <pthread.h>

namespace heddle::worker {

namespace {

/// Until a busy peer is asked again: a load that is worth a peer's help takes longer.
constexpr auto kPause = std::chrono::milliseconds(10);
/// A peer that says nothing for so long is taken for dead; a slot takes it a millisecond.
constexpr auto kPatience = std::chrono::seconds(5);

void pause(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any nothing;
  (void)nothing.wait_for(lock, stop, kPause, [] { return false; });
}

}  // namespace

PeerLoad::PeerLoad(device::Device& device, Mapper& mapper, int peer, Descriptor socket)
    : device_(device),
      mapper_(mapper),
      peer_(peer),
      socket_(std::move(socket)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

PeerLoad::~PeerLoad() = default;

void PeerLoad::run(const std::stop_token& stop) {
  (void)::pthread_setname_np(::pthread_self(), "peer-load");
  if (!device_.is_linked_to(peer_)) {
    socket_ = Descriptor();  // One path, then. The peer forgets this end.
    ended_ = true;
    return;
  }
  Result<void> fine;
  while (fine && mapper_.wait_for_share(stop)) {
    const Result<bool> began = begin();
    if (!began) {
      fine = began.error();
    } else if (!*began) {
      pause(stop);
    } else {
      Slots slots{};
      fine = carry(slots);
      for (const std::optional<Mapper::Share>& share : slots) {
        if (share) {
          mapper_.give_back(*share);
        }
      }
    }
  }
  if (!fine) {
    log::info("loads no longer go over another GPU's link",
              {{"gpu", peer_}, {"reason", fine.error().message}});
  }
  staging_ = {};
  socket_ = Descriptor();
  ended_ = true;
}

Result<bool> PeerLoad::begin() {
  if (const Result<void> asked = send_request(socket_, {.ask = PeerAsk::kBegin}); !asked) {
    return asked.error();
  }
  Descriptor beside;
  const Result<PeerReply> reply = receive_reply(socket_, kPatience, beside);
  if (!reply) {
    return reply.error();
  }
  if (reply->answer != PeerAnswer::kGranted) {
    return false;
  }
  if (staging_.data() != nullptr) {
    return true;
  }
  if (!beside || reply->bytes < kPeerSlots * kPeerSlotBytes) {
    return Error{Code::kCorrupt, "another worker lends no staging area"};
  }
  auto stream = device_.create_background_stream();
  auto staging = device_.attach_shared(beside, reply->bytes);
  if (!stream || !staging) {
    return stream ? staging.error() : stream.error();
  }
  stream_ = std::move(*stream);
  staging_ = std::move(*staging);
  log::info("loads go over another GPU's link, too", {{"gpu", peer_}});
  return true;
}

/// Has the peer fill `slot` with the next share, if there is one.
Result<void> PeerLoad::ask(Slots& slots, std::size_t slot) {
  static_assert(Mapper::kShareBytesMax <= kPeerSlotBytes);
  slots[slot] = mapper_.take_share();
  if (!slots[slot]) {
    return {};
  }
  PeerRequest request{.ask = PeerAsk::kFetch, .slot = static_cast<std::uint32_t>(slot)};
  for (const Mapper::Share::Piece& piece : slots[slot]->pieces) {
    request.pieces.push_back({.page = piece.source, .offset = piece.offset, .bytes = piece.bytes});
  }
  return send_request(socket_, request);
}

Result<void> PeerLoad::carry(Slots& slots) {
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (const Result<void> asked = ask(slots, slot); !asked) {
      return asked;
    }
  }
  bool busy = false;
  while (std::ranges::any_of(slots, [](const auto& share) { return share.has_value(); })) {
    Descriptor none;
    const Result<PeerReply> reply = receive_reply(socket_, kPatience, none);
    if (!reply) {
      return reply.error();
    }
    std::optional<Mapper::Share>& share = slots[reply->slot];
    if (!share || reply->answer == PeerAnswer::kGranted) {
      return Error{Code::kCorrupt, "another worker answers what was not asked"};
    }
    if (reply->answer == PeerAnswer::kBusy) {
      mapper_.give_back(*share);
      share.reset();
      busy = true;
      continue;
    }
    write(*std::exchange(share, std::nullopt), reply->slot);
    if (const Result<void> asked = busy ? Result<void>() : ask(slots, reply->slot); !asked) {
      return asked;
    }
  }
  return send_request(socket_, {.ask = PeerAsk::kEnd});
}

/// From the slot to the device's pages, unless nobody wants the model any more.
void PeerLoad::write(const Mapper::Share& share, std::size_t slot) {
  if (!mapper_.begin_writing(share)) {
    return;
  }
  const std::byte* source = staging_.data() + slot * kPeerSlotBytes;
  for (const Mapper::Share::Piece& piece : share.pieces) {
    stream_->copy(device_.page_address(piece.target) + piece.offset, source, piece.bytes);
    source += piece.bytes;
  }
  mapper_.end_writing(share, stream_->synchronize());
}

}  // namespace heddle::worker
