#include "fetch/peer_source.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fetch/url.h"

namespace heddle::fetch {
namespace {

/// A peer that has failed so often is not asked again,
constexpr int kFailuresMost = 3;
/// and before that not for so long.
constexpr Duration kPause = std::chrono::seconds(5);

}  // namespace

/// Passes on what comes of a range, from whomever, and knows how far that is.
class PeerSource::Delivery {
 public:
  Delivery(Range range, const Sink& sink) : range_(range), sink_(sink) {}

  /// For one who gives from rest() on, or from before that.
  [[nodiscard]] Sink sink() {
    return [this](std::uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
      if (offset > at()) {
        return Error{Code::kCorrupt, "bytes are missing before those that came"};
      }
      const std::uint64_t known = std::min<std::uint64_t>(at() - offset, bytes.size());
      const std::span<const std::byte> fresh = bytes.subspan(known);
      if (fresh.empty()) {
        return {};
      }
      const std::uint64_t place = at();
      came_ += fresh.size();
      Result<void> taken = sink_(place, fresh);
      return taken ? taken : refuse(taken.error());
    };
  }
  [[nodiscard]] std::uint64_t came() const { return came_; }
  [[nodiscard]] std::uint64_t at() const { return range_.begin + came_; }
  [[nodiscard]] Range rest() const { return {at(), range_.end}; }
  [[nodiscard]] bool complete() const { return at() >= range_.end; }
  /// What whoever takes the bytes has said, where that was an error.
  [[nodiscard]] const std::optional<Error>& refused() const { return refused_; }

 private:
  Result<void> refuse(Error error) {
    refused_ = std::move(error);
    return *refused_;
  }

  const Range range_;
  const Sink& sink_;
  std::uint64_t came_ = 0;
  std::optional<Error> refused_{};
};

PeerSource::PeerSource(Setup setup) : setup_(std::move(setup)), known_(setup_.peers.size()) {}

Result<Listing> PeerSource::list(const std::stop_token& stop) {
  Result<Listing> listing = setup_.lister->list(stop);
  if (listing || listing.error().code != Code::kUnavailable || stop.stop_requested()) {
    return listing;
  }
  std::string others;
  for (const std::shared_ptr<Peer>& peer : setup_.peers) {
    Result<Listing> theirs = peer->list(setup_.model, stop);
    if (theirs) {
      return theirs;
    }
    others += fmt::format("; host {}: {}", peer->name(), theirs.error().message);
  }
  return Error{listing.error().code, listing.error().message + others};
}

/// The next one to ask for a range of this object.
std::optional<std::size_t> PeerSource::next_peer(const Object& object,
                                                 const std::set<std::size_t>& asked) {
  const std::lock_guard lock(mutex_);
  const Instant now = setup_.now();
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const std::size_t peer = (turn_ + i) % known_.size();
    const Known& known = known_[peer];
    if (!asked.contains(peer) && !known.lacks.contains(object.name) &&
        known.failures < kFailuresMost && now >= known.not_before) {
      turn_ = peer + 1;
      return peer;
    }
  }
  return std::nullopt;
}

void PeerSource::note(std::size_t peer, const Object& object, bool gave, const Result<void>& read) {
  {
    const std::lock_guard lock(mutex_);
    Known& known = known_[peer];
    if (gave) {
      known.gave.insert(object.name);
    }
    if (read) {
      known.failures = 0;
      return;
    }
    if (read.error().code == Code::kNotFound) {
      known.lacks.insert(object.name);
    } else if (read.error().code != Code::kUnavailable) {
      known.failures = kFailuresMost;
    } else if (const Instant now = setup_.now(); now >= known.not_before) {
      ++known.failures;  // Of reads that fail together one counts.
      known.not_before = now + kPause;
    }
  }
  if (setup_.on_failure) {
    setup_.on_failure(fmt::format("host {} does not give {}: {}",
                                  setup_.peers[peer]->name(),
                                  object.name,
                                  read.error().message));
  }
}

Result<void> PeerSource::read(const Object& object,
                              Range range,
                              const Sink& sink,
                              const std::stop_token& stop) {
  Delivery delivery(range, sink);
  std::set<std::size_t> asked;
  while (!object.identity().empty()) {
    const std::optional<std::size_t> peer = next_peer(object, asked);
    if (!peer) {
      break;
    }
    asked.insert(*peer);
    const std::uint64_t before = delivery.came();
    Result<void> read =
        setup_.peers[*peer]->read(setup_.model, object, delivery.rest(), delivery.sink(), stop);
    if (stop.stop_requested() || delivery.refused()) {
      note(*peer, object, delivery.came() > before, Result<void>());
      return delivery.refused() ? Result<void>(*delivery.refused())
                                : Error{Code::kCancelled, "stopped"};
    }
    if (read && !delivery.complete()) {
      read = Error{Code::kCorrupt, "it ended early"};
    }
    note(*peer, object, delivery.came() > before, read);
    if (read) {
      return {};
    }
  }
  return read_origin(object, range, delivery, stop);
}

/// What no peer has given of the range.
Result<void> PeerSource::read_origin(const Object& object,
                                     Range range,
                                     Delivery& delivery,
                                     const std::stop_token& stop) {
  if (object.url.empty()) {
    return Error{Code::kUnavailable,
                 fmt::format("{} was away when a host said what there is of {}, and now no host "
                             "gives {}",
                             shown(setup_.model),
                             "it",
                             object.name)};
  }
  Result<void> read = setup_.origin->read(object, delivery.rest(), delivery.sink(), stop);
  const bool whole = range.begin == 0 && range.end == object.bytes;
  if (!read && read.error().message == kIgnoresRanges && whole) {
    read = setup_.origin->read(object, range, delivery.sink(), stop);
  }
  return read;
}

void PeerSource::spoilt(const Object& object) {
  setup_.origin->spoilt(object);
  const std::lock_guard lock(mutex_);
  for (std::size_t peer = 0; peer < known_.size(); ++peer) {
    if (known_[peer].gave.contains(object.name)) {
      known_[peer].failures = kFailuresMost;
      setup_.peers[peer]->distrust(setup_.model);
    }
  }
}

}  // namespace heddle::fetch
