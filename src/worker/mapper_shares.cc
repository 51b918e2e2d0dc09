// What a Mapper offers paths other than the device's own link.

#include <algorithm>
#include <utility>

#include "worker/mapper.h"

namespace heddle::worker {

/// What is smaller than a whole share is quicker over the device's own link.
Mapper::Load* Mapper::next_to_share() {
  return choose([this](const Load& load) {
    return load.parts.has(allowed(load), part_bytes(load, kShareBytesMax));
  });
}

bool Mapper::wait_for_share(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  return shared_.wait(lock, stop, [this] { return next_to_share() != nullptr; });
}

std::optional<Mapper::Share> Mapper::take_share() {
  const std::lock_guard lock(mutex_);
  Load* const load = next_to_share();
  if (load == nullptr) {
    return std::nullopt;
  }
  const std::uint64_t bytes = part_bytes(*load, kShareBytesMax);
  const auto part = load->parts.take(bytes, allowed(*load), bytes);
  if (!part) {
    return std::nullopt;
  }
  Share share{.load = load->number, .part = *part};
  for_pieces(load->image, *part, [&](const Share::Piece& piece) { share.pieces.push_back(piece); });
  return share;
}

Mapper::Load* Mapper::numbered(std::uint64_t number) {
  const auto found =
      std::ranges::find_if(loads_, [&](const Load& load) { return load.number == number; });
  return found == loads_.end() || found->ended ? nullptr : &*found;
}

void Mapper::give_back(const Share& share) {
  {
    const std::lock_guard lock(mutex_);
    if (Load* const load = numbered(share.load)) {
      load->parts.give_back(share.part);
    }
  }
  woken_.notify_one();
  shared_.notify_all();
}

bool Mapper::begin_writing(const Share& share) {
  const std::lock_guard lock(mutex_);
  Load* const load = numbered(share.load);
  if (load != nullptr) {
    ++load->writing;
  }
  return load != nullptr;
}

void Mapper::end_writing(const Share& share, const Result<void>& written) {
  {
    const std::lock_guard lock(mutex_);
    Load& load =
        *std::ranges::find_if(loads_, [&](const Load& each) { return each.number == share.load; });
    --load.writing;
    if (written) {
      load.parts.put_in_place(share.part);
      copied_bytes_ += share.part.bytes();
      peer_load_bytes_ += share.part.bytes();
    } else {
      load.parts.give_back(share.part);
      failed_ = written.error();
    }
  }
  woken_.notify_one();
}

bool Mapper::is_idle() {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && loads_.empty();
}

}  // namespace heddle::worker
