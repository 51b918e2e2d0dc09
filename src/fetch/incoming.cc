#include "fetch/incoming.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fetch/digest.h"
#include "fetch/disk.h"
#include "fetch/ranged_read.h"

namespace heddle::fetch {
namespace {

std::uint64_t overlap(Range a, Range b) {
  const std::uint64_t begin = std::max(a.begin, b.begin);
  const std::uint64_t end = std::min(a.end, b.end);
  return end > begin ? end - begin : 0;
}

/// Of ranges that are sorted and apart from each other.
std::uint64_t overlap(const std::vector<Range>& ranges, Range with) {
  std::uint64_t bytes = 0;
  for (auto at = std::ranges::upper_bound(ranges, with.begin, {}, &Range::end);
       at != ranges.end() && at->begin < with.end;
       ++at) {
    bytes += overlap(*at, with);
  }
  return bytes;
}

}  // namespace

Incoming::Incoming(std::vector<Job> jobs, IncomingOptions options)
    : jobs_(std::move(jobs)),
      options_(std::move(options)),
      record_bytes_(std::min(options_.record_bytes, options_.piece_bytes)),
      states_(jobs_.size()) {
  HEDDLE_CHECK(record_bytes_ > 0);
}

Result<void> Incoming::open() {
  const std::lock_guard lock(mutex_);
  for (std::size_t job = 0; job < jobs_.size(); ++job) {
    if (Result<void> opened = open_job(job); !opened) {
      return opened;
    }
  }
  return {};
}

/// With the lock, as all that follows unless it says otherwise.
Result<void> Incoming::open_job(std::size_t job) {
  JobState& state = states_[job];
  if (state.file || state.over) {
    return {};
  }
  const Object& object = jobs_[job].object;
  Result<PartialFile> file = PartialFile::open(jobs_[job].partial, object, record_bytes_);
  if (!file) {
    return file.error();
  }
  state.file = std::move(file).value();
  state.records.assign((object.bytes + record_bytes_ - 1) / record_bytes_, Record::kThere);
  for (const Range& range : state.file->missing()) {
    state.records[range.begin / record_bytes_] = Record::kMissing;
    state.missing_bytes += range.bytes();
  }
  for (auto& [id, order] : orders_) {
    if (order.extents.contains(job)) {
      count(order, job);
      if (Result<void> reserved = reserve(order, job); !reserved) {
        return reserved;
      }
    }
  }
  return {};
}

Result<void> Incoming::reserve(const Order& order, std::size_t job) {
  JobState& state = states_[job];
  if (!state.file) {
    return {};
  }
  for (const Range& range : order.extents.at(job)) {
    if (has(state, range)) {
      continue;
    }
    if (Result<void> reserved = state.file->reserve(range); !reserved) {
      return reserved;
    }
  }
  return {};
}

// ---- Of orders ----

Range Incoming::rounded(const Part& part) const {
  const std::uint64_t bytes = jobs_[part.job].object.bytes;
  const std::uint64_t end = (part.range.end + record_bytes_ - 1) / record_bytes_ * record_bytes_;
  return {part.range.begin / record_bytes_ * record_bytes_, std::min(end, bytes)};
}

std::vector<Part> Incoming::rounded(const std::vector<Part>& parts) const {
  std::vector<Part> joined;
  for (const Part& part : parts) {
    const Range range = rounded(part);
    const bool follows = !joined.empty() && joined.back().job == part.job &&
                         range.begin <= joined.back().range.end &&
                         range.begin >= joined.back().range.begin;
    if (follows) {
      joined.back().range.end = std::max(joined.back().range.end, range.end);
    } else {
      joined.push_back({.job = part.job, .range = range});
    }
  }
  return joined;
}

std::map<std::size_t, std::vector<Range>> Incoming::extents_of(
    const std::vector<Part>& parts) const {
  std::map<std::size_t, std::vector<Range>> extents;
  for (const Part& part : parts) {
    extents[part.job].push_back(part.range);
  }
  for (auto& [job, ranges] : extents) {
    std::ranges::sort(ranges, {}, &Range::begin);
    std::vector<Range> apart;
    for (const Range& range : ranges) {
      if (!apart.empty() && range.begin <= apart.back().end) {
        apart.back().end = std::max(apart.back().end, range.end);
      } else {
        apart.push_back(range);
      }
    }
    ranges = std::move(apart);
  }
  return extents;
}

OrderId Incoming::begin(const std::vector<Part>& parts, OrderEvents events) {
  const std::lock_guard lock(mutex_);
  const OrderId id(++begun_);
  Order& order = orders_[id];
  order.parts = rounded(parts);
  order.extents = extents_of(order.parts);
  order.events = std::move(events);
  order.at = order.parts.empty() ? 0 : order.parts.front().range.begin;
  order.generation = generation_;
  for (const auto& [job, ranges] : order.extents) {
    if (!states_[job].file && !states_[job].over) {
      continue;
    }
    count(order, job);
    if (const Result<void> reserved = reserve(order, job); !reserved) {
      order.failed = reserved.error();
    }
  }
  return id;
}

/// Tells what is there of an order's part of a job.
void Incoming::count(Order& order, std::size_t job) const {
  std::uint64_t there = 0;
  for (const Range& range : order.extents.at(job)) {
    there += range.bytes() - lacking_bytes(states_[job], range);
  }
  order.there[job] = there;
  if (order.events.moved) {
    order.events.moved(job, there);
  }
}

void Incoming::end(OrderId order) {
  const std::lock_guard lock(mutex_);
  orders_.erase(order);
}

bool Incoming::others_wait(OrderId order) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      orders_, [&](const auto& other) { return other.first != order && !over(other.second); });
}

std::optional<Error> Incoming::failure(OrderId order) const {
  const std::lock_guard lock(mutex_);
  return orders_.at(order).failed;
}

void Incoming::fail(OrderId id, const Error& error) {
  const std::lock_guard lock(mutex_);
  Order& order = orders_.at(id);
  if (!order.failed) {
    order.failed = error;
  }
  came_.notify_all();
  changed_.notify_all();
}

bool Incoming::has(const JobState& state, Range range) const {
  return state.over || (state.file && lacking_bytes(state, range) == 0);
}

std::uint64_t Incoming::lacking_bytes(const JobState& state, Range range) const {
  if (state.over) {
    return 0;
  }
  std::uint64_t bytes = 0;
  for (std::uint64_t at = range.begin / record_bytes_; at * record_bytes_ < range.end; ++at) {
    if (state.records[at] != Record::kThere) {
      bytes += overlap(range, {at * record_bytes_, (at + 1) * record_bytes_});
    }
  }
  return bytes;
}

Result<void> Incoming::await(OrderId id, const Part& part, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const Order& order = orders_.at(id);
  const JobState& state = states_[part.job];
  const bool told = came_.wait(lock, stop, [&] { return order.failed || has(state, part.range); });
  if (order.failed) {
    return *order.failed;
  }
  return told ? Result<void>() : Result<void>(Error{Code::kCancelled, "stopped"});
}

// ---- Of those who fetch ----

bool Incoming::over(const Order& order) const {
  if (order.failed) {
    return true;
  }
  return std::ranges::all_of(order.extents, [&](const auto& entry) {
    const JobState& state = states_[entry.first];
    if (state.over) {
      return true;
    }
    std::uint64_t wanted = 0;
    for (const Range& range : entry.second) {
      wanted += range.bytes();
    }
    return state.file && order.there.at(entry.first) == wanted && state.missing_bytes > 0;
  });
}

bool Incoming::may_finish(std::size_t job) const {
  const JobState& state = states_[job];
  return state.file && !state.over && state.missing_bytes == 0 && state.claims == 0;
}

std::optional<Work::Kind> Incoming::await_work(OrderId id, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  Order& order = orders_.at(id);
  std::optional<Work> work;
  (void)changed_.wait(lock, stop, [&] {
    work = over(order) ? std::nullopt : find(order);
    return work || over(order);
  });
  return work && !stop.stop_requested() ? std::optional(work->kind) : std::nullopt;
}

std::optional<Work> Incoming::find(Order& order) {
  if (order.generation != generation_) {
    order.generation = generation_;
    order.part = 0;
    order.at = order.parts.empty() ? 0 : order.parts.front().range.begin;
  }
  for (const auto& [job, ranges] : order.extents) {
    if (may_finish(job)) {
      return Work{.job = job, .range = {}, .kind = Work::Kind::kFinish};
    }
  }
  while (order.part < order.parts.size() && !order.failed) {
    if (std::optional<Work> work = find_in(order, order.parts[order.part])) {
      return work;
    }
    ++order.part;
    order.at = order.part < order.parts.size() ? order.parts[order.part].range.begin : 0;
  }
  return std::nullopt;
}

/// Something of this part, from the order's place on.
std::optional<Work> Incoming::find_in(Order& order, const Part& part) {
  if (const Result<void> opened = open_job(part.job); !opened) {
    order.failed = opened.error();
    return std::nullopt;
  }
  if (may_finish(part.job)) {
    return Work{.job = part.job, .range = {}, .kind = Work::Kind::kFinish};
  }
  const JobState& state = states_[part.job];
  if (state.over) {
    return std::nullopt;
  }
  if (state.one_stream) {
    const bool wanted = state.claims == 0 && !has(state, part.range);
    return wanted ? std::optional(Work{.job = part.job,
                                       .range = {0, jobs_[part.job].object.bytes},
                                       .kind = Work::Kind::kStream})
                  : std::nullopt;
  }
  const auto missing = [&](std::uint64_t at) {
    return state.records[at / record_bytes_] == Record::kMissing;
  };
  while (order.at < part.range.end && !missing(order.at)) {
    order.at += record_bytes_;
  }
  if (order.at >= part.range.end) {
    return std::nullopt;
  }
  // A request goes on over what follows in the file, as far as it is wanted too.
  const std::vector<Range>& wanted = order.extents.at(part.job);
  const std::uint64_t last = std::ranges::upper_bound(wanted, order.at, {}, &Range::end)->end;
  std::uint64_t end = order.at + record_bytes_;
  while (end < last && end % options_.piece_bytes != 0 && missing(end) &&
         end - order.at < options_.piece_bytes) {
    end += record_bytes_;
  }
  return Work{.job = part.job, .range = {order.at, std::min(end, last)}};
}

std::optional<Work> Incoming::claim(OrderId id) {
  const std::lock_guard lock(mutex_);
  Order& order = orders_.at(id);
  const std::optional<Work> work = over(order) ? std::nullopt : find(order);
  if (!work) {
    return std::nullopt;
  }
  ++states_[work->job].claims;
  if (work->kind == Work::Kind::kPiece) {
    set(work->job, work->range, Record::kMissing, Record::kClaimed);
  }
  if (work->kind == Work::Kind::kFinish) {
    for (auto& [each, heard] : orders_) {
      if (heard.events.checking && heard.extents.contains(work->job)) {
        heard.events.checking(work->job);
      }
    }
  }
  return work;
}

void Incoming::set(std::size_t job, Range range, Record from, Record to) {
  JobState& state = states_[job];
  for (std::uint64_t at = range.begin / record_bytes_; at * record_bytes_ < range.end; ++at) {
    if (state.records[at] == from) {
      state.records[at] = to;
    }
  }
}

Result<void> Incoming::seed(std::size_t job, std::span<const std::byte> front) {
  const Result<bool> put_front = put({.job = job}, 0, front);
  return put_front ? Result<void>() : put_front.error();
}

/// Without the lock, as nobody else writes these bytes.
Result<bool> Incoming::put(const Work& work,
                           std::uint64_t offset,
                           std::span<const std::byte> bytes) {
  if (const Result<void> written = states_[work.job].file->write(offset, bytes); !written) {
    return written.error();
  }
  const std::uint64_t until = offset + bytes.size();
  const std::uint64_t end =
      until == jobs_[work.job].object.bytes ? until : until / record_bytes_ * record_bytes_;
  const Range whole{offset / record_bytes_ * record_bytes_, end};
  const std::lock_guard lock(mutex_);
  if (end > whole.begin) {
    if (const Result<void> marked = mark(work.job, whole); !marked) {
      return marked.error();
    }
  }
  return work.kind == Work::Kind::kStream && until >= enough(work.job);
}

/// Up to where orders want a job.
std::uint64_t Incoming::enough(std::size_t job) const {
  std::uint64_t end = 0;
  for (const auto& [id, order] : orders_) {
    const auto found = order.extents.find(job);
    if (found != order.extents.end() && !found->second.empty() && !order.failed) {
      end = std::max(end, found->second.back().end);
    }
  }
  return end;
}

/// These records are there, some of them perhaps since long.
Result<void> Incoming::mark(std::size_t job, Range range) {
  JobState& state = states_[job];
  const std::uint64_t lacked = lacking_bytes(state, range);
  if (lacked == 0) {
    return {};
  }
  if (Result<void> noted = state.file->mark(range); !noted) {
    return noted;
  }
  for (auto& [id, order] : orders_) {
    const auto extents = order.extents.find(job);
    if (extents == order.extents.end()) {
      continue;
    }
    std::uint64_t bytes = 0;
    for (std::uint64_t at = range.begin; at < range.end; at += record_bytes_) {
      const Range record{at, std::min(at + record_bytes_, range.end)};
      bytes += state.records[at / record_bytes_] != Record::kThere
                   ? overlap(extents->second, record)
                   : 0;
    }
    if (bytes > 0) {
      order.there[job] += bytes;
      if (order.events.moved) {
        order.events.moved(job, order.there[job]);
      }
    }
  }
  state.missing_bytes -= lacked;
  set(job, range, Record::kMissing, Record::kThere);
  set(job, range, Record::kClaimed, Record::kThere);
  came_.notify_all();
  return {};
}

/// Without the lock, as nobody else has a claim.
Result<void> Incoming::finish(const Work& work, const std::stop_token& stop) {
  PartialFile& file = *states_[work.job].file;
  if (Result<void> right = check_digest(file.path(), jobs_[work.job].object, stop); !right) {
    return right;
  }
  if (Result<void> cut = file.finish(); !cut) {
    return cut;
  }
  return options_.keep ? options_.keep(work.job) : Result<void>();
}

void Incoming::done(OrderId id, const Work& work, const Result<void>& result) {
  const std::lock_guard lock(mutex_);
  JobState& state = states_[work.job];
  --state.claims;
  changed_.notify_all();
  if (result && work.kind == Work::Kind::kFinish) {
    state.over = true;
    state.file.reset();
    for (auto& [each, order] : orders_) {
      if (order.events.came && order.extents.contains(work.job)) {
        order.events.came(work.job);
      }
    }
    came_.notify_all();
    return;
  }
  if (!result || work.kind == Work::Kind::kStream) {
    ++generation_;  // Others look again for what is left.
  }
  if (result) {
    return;
  }
  if (work.kind == Work::Kind::kPiece) {
    set(work.job, work.range, Record::kClaimed, Record::kMissing);
  }
  if (work.kind == Work::Kind::kFinish && result.error().code == Code::kCorrupt) {
    spoil(work.job, result.error());
    return;
  }
  const bool is_whole = work.range.bytes() == jobs_[work.job].object.bytes;
  if (result.error().message == kIgnoresRanges && !is_whole) {
    if (!std::exchange(state.one_stream, true) && options_.on_stream) {
      options_.on_stream(work.job);
    }
    return;
  }
  spoilt_ = spoilt_ || result.error().code == Code::kCorrupt;
  Order& order = orders_.at(id);
  if (!order.failed) {
    order.failed = result.error();
  }
  came_.notify_all();
}

/// The object came with another digest: nothing of it is there any more.
void Incoming::spoil(std::size_t job, const Error& error) {
  JobState& state = states_[job];
  const Result<void> forgotten = state.file->forget();
  std::ranges::fill(state.records, Record::kMissing);
  state.missing_bytes = jobs_[job].object.bytes;
  const bool again = ++state.digests_wrong < options_.digest_tries && forgotten;
  spoilt_ = spoilt_ || !again;
  for (auto& [id, order] : orders_) {
    if (!order.extents.contains(job)) {
      continue;
    }
    count(order, job);
    if (!again && !order.failed) {
      order.failed = error;
    }
  }
  came_.notify_all();
}

// ---- Of all ----

std::map<std::size_t, std::uint64_t> Incoming::bytes_of(const std::vector<Part>& parts) const {
  std::map<std::size_t, std::uint64_t> bytes;
  for (const auto& [job, ranges] : extents_of(rounded(parts))) {
    for (const Range& range : ranges) {
      bytes[job] += range.bytes();
    }
  }
  return bytes;
}

std::uint64_t Incoming::missing_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const JobState& state : states_) {
    bytes += state.over ? 0 : state.missing_bytes;
  }
  return bytes;
}

std::vector<Part> Incoming::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<Part> parts;
  for (std::size_t job = 0; job < jobs_.size(); ++job) {
    const JobState& state = states_[job];
    if (state.over) {
      continue;
    }
    if (state.missing_bytes == 0) {
      parts.push_back({.job = job});  // It is to be finished.
    }
    for (std::uint64_t at = 0; at < state.records.size(); ++at) {
      if (state.records[at] != Record::kThere) {
        const Part record{.job = job, .range = {at * record_bytes_, (at + 1) * record_bytes_}};
        parts.push_back({.job = job, .range = rounded(record)});
      }
    }
  }
  return parts;
}

std::uint64_t Incoming::needed_bytes(const std::vector<Part>& parts) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t needed = 0;
  for (const auto& [job, ranges] : extents_of(rounded(parts))) {
    const JobState& state = states_[job];
    std::uint64_t lacking = 0;
    for (const Range& range : ranges) {
      lacking += lacking_bytes(state, range);
    }
    const std::uint64_t wanted = jobs_[job].object.bytes - state.missing_bytes + lacking;
    const std::uint64_t taken = state.over ? wanted : taken_bytes(jobs_[job].partial);
    needed += std::min(lacking, wanted - std::min(wanted, taken));
  }
  return needed;
}

bool Incoming::whole() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(states_, &JobState::over);
}

bool Incoming::spoilt() const {
  const std::lock_guard lock(mutex_);
  return spoilt_;
}

}  // namespace heddle::fetch
