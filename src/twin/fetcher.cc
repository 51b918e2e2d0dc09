#include "twin/fetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace heddle::twin {

namespace {

/// Bytes come in pieces of this size, ...
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 10U;
/// ... and so many are asked for at once.
constexpr std::uint64_t kAskBytes = std::uint64_t{4} << 20U;
/// What another fetch brings is looked for so often.
constexpr Duration kLookInterval = std::chrono::milliseconds(1);

std::uint64_t total_bytes(const TwinModel& model) {
  std::uint64_t bytes = 0;
  for (const FileRecord& record : model.records) {
    bytes += record.bytes;
  }
  return bytes;
}

}  // namespace

void Fetcher::start(core::StartRead read, const TwinModel& model) {
  const ModelId id = read.model;
  HEDDLE_CHECK(!running_.contains(id) && !model.records.empty());
  const std::optional<Instant> due =
      read.due_in > Duration{} ? std::optional(agenda_.now() + read.due_in) : std::nullopt;
  const FetchLink::Member member = link_.join({.early = read.early, .due = due});
  running_[id] = {.read = std::move(read), .model = &model, .member = member, .number = ++begun_};
  go_on_later(id, paths_.fetch.begin);
}

void Fetcher::cancel(ModelId model) {
  if (const auto found = running_.find(model); found != running_.end()) {
    found->second.stops = true;
  }
}

void Fetcher::go_on_later(ModelId model, Duration after) {
  agenda_.after(after, [this, model, number = running_.at(model).number] {
    const auto found = running_.find(model);
    if (found != running_.end() && found->second.number == number) {
      go_on(model);
    }
  });
}

/// With the next record: one that is there is read from it, one that another fetch brings is
/// awaited.
void Fetcher::go_on(ModelId id) {
  Running& running = running_.at(id);
  if (running.stops) {
    end(id, Error{.code = Code::kCancelled, .message = "as asked"});
    return;
  }
  const FileRecord& record = running.model->records[running.next];
  Files& files = files_[running.model->source];
  if (files.there.contains(record.number)) {
    const Duration takes = from_seconds(static_cast<double>(record.bytes) / paths_.read);
    agenda_.after(takes + faults_.some(faults_.late().read), [this, id, number = running.number] {
      const auto found = running_.find(id);
      if (found != running_.end() && found->second.number == number) {
        came(id);
      }
    });
  } else if (files.coming.contains(record.number)) {
    go_on_later(id, kLookInterval);
  } else {
    files.coming.insert(record.number);
    fetch(id);
  }
}

/// A record, of which nobody has anything.
void Fetcher::fetch(ModelId id) {
  Running& running = running_.at(id);
  const std::uint64_t bytes = running.model->records[running.next].bytes;
  if (running.asked < bytes) {
    running.asked += kAskBytes;
    link_.ask(running.member, [this, id, bytes] { take(id, bytes); });
  } else {
    take(id, bytes);
  }
}

/// So many bytes are left of it. They cross the link of the host that gives them, if one does, and
/// then this one's.
void Fetcher::take(ModelId id, std::uint64_t bytes) {
  const Running& running = running_.at(id);
  const std::uint64_t piece = std::min(bytes, kPieceBytes);
  Fetcher* const peer = peer_for(running);
  const auto mine = [this, id, member = running.member, bytes, piece] {
    link_.take(member, piece, [this, id, left = bytes - piece] { pass(id, left); });
  };
  if (peer == nullptr) {
    mine();
    return;
  }
  if (!peer->giving_) {
    peer->giving_ = peer->link_.join({});
  }
  peer->link_.take(*peer->giving_, piece, mine);
}

void Fetcher::pass(ModelId id, std::uint64_t left) {
  Running& running = running_.at(id);
  if (left > 0) {
    take(id, left);
    return;
  }
  const FileRecord& record = running.model->records[running.next];
  running.asked -= std::min(running.asked, record.bytes);
  Files& files = files_[running.model->source];
  files.coming.erase(record.number);
  if (running.next == 1 && faults_.read_fails()) {
    end(id, Error{.code = Code::kUnavailable, .message = "the source says no"});
    return;
  }
  files.there.insert(record.number);
  agenda_.after(faults_.some(faults_.late().read), [this, id] { came(id); });
}

/// A record of the image is in its place.
void Fetcher::came(ModelId id) {
  Running& running = running_.at(id);
  const std::uint64_t image = running.model->model.image_bytes;
  const auto placed = [&](std::uint64_t done) {
    return static_cast<std::uint64_t>(static_cast<double>(image) * static_cast<double>(done) /
                                      static_cast<double>(total_bytes(*running.model)));
  };
  const std::uint64_t before = placed(running.done);
  running.done += running.model->records[running.next].bytes;
  const bool last = ++running.next == running.model->records.size();
  const std::uint64_t now = last ? image : placed(running.done);
  if (contents_ != nullptr) {
    contents_->read_image(id, running.read.pages, before, now);
  }
  if (last) {
    end(id, std::nullopt);
    return;
  }
  if (now > before) {
    on_event_(core::ReadProgress{.model = id, .bytes = now});
  }
  go_on(id);
}

void Fetcher::end(ModelId id, std::optional<Error> error) {
  link_.leave(running_.at(id).member);
  running_.erase(id);
  on_event_(core::ReadEnded{.model = id, .error = std::move(error)});
}

bool Fetcher::has(ModelId source, std::uint64_t record) const {
  const auto found = files_.find(source);
  return found != files_.end() && found->second.there.contains(record);
}

/// The first of those named that is up and has what comes next; null: the source.
Fetcher* Fetcher::peer_for(const Running& running) {
  for (const core::GroupHost& host : running.read.peers) {
    Fetcher* const peer = find_peer_ ? find_peer_(host.id) : nullptr;
    if (peer != nullptr &&
        peer->has(running.model->source, running.model->records[running.next].number)) {
      return peer;
    }
  }
  return nullptr;
}

}  // namespace heddle::twin
