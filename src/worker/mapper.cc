#include "worker/mapper.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/clock.h"

namespace heddle::worker {

namespace {

/// How often a copy is reported: rarely enough not to matter, often enough to start early. A small
/// image in so many parts, about as many as a model has layers.
constexpr std::uint64_t kReportBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kReportParts = 32;
/// Copied at once: long enough that waiting for its end costs little (0.6 ms at 50 GB/s, where a
/// synchronisation takes some 10 us), short enough to turn to what is more urgent.
constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20U;

}  // namespace

Mapper::Mapper(device::Device& device, std::uint64_t bandwidth, Handlers handlers)
    : device_(device),
      handlers_(std::move(handlers)),
      link_(bandwidth),
      thread_([this] { run(); }) {}

Mapper::~Mapper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void Mapper::open(Open job) {
  {
    const std::lock_guard lock(mutex_);
    sources_[job.model] = {.allowed = job.ready_bytes};
    jobs_.emplace_back(std::move(job));
  }
  woken_.notify_one();
}

void Mapper::close(ModelId model, memory::Window* window) {
  {
    const std::lock_guard lock(mutex_);
    sources_.erase(model);
    jobs_.emplace_back(Close{.model = model, .window = window});
  }
  woken_.notify_one();
}

void Mapper::allow_copy(ModelId model, std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = sources_.find(model);
    if (found == sources_.end()) {
      return;
    }
    found->second.allowed = std::max(found->second.allowed, bytes);
  }
  woken_.notify_one();
}

void Mapper::hasten(ModelId model) {
  const std::lock_guard lock(mutex_);
  const auto found = sources_.find(model);
  if (found != sources_.end()) {
    found->second.urgent = true;
  }
}

void Mapper::run() {
  if (Result<std::unique_ptr<device::Stream>> stream = device_.create_background_stream()) {
    stream_ = std::move(*stream);
  } else {
    handlers_.on_lost(stream.error());
    return;
  }
  for (;;) {
    std::optional<Job> job;
    std::optional<Piece> piece;
    bool waited = false;
    {
      std::unique_lock lock(mutex_);
      waited = jobs_.empty() && !next().has_value();
      woken_.wait(lock, [&] { return stopping_ || !jobs_.empty() || next().has_value(); });
      if (stopping_) {
        return;
      }
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      } else {
        piece = next();
      }
    }
    if (job.has_value()) {
      carry_out(std::move(*job));
    } else {
      if (waited) {
        link_.begin();  // An idle link saves nothing up.
      }
      carry_out(*piece);
    }
  }
}

/// What the first load that can go on does, those that are urgent first. Called with the lock held.
std::optional<Mapper::Piece> Mapper::next() const {
  std::optional<Piece> first;
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    const Load& load = loads_[i];
    const auto found = sources_.find(load.image.model);
    if (found == sources_.end() || (first && !found->second.urgent)) {
      continue;
    }
    const std::uint64_t image = load.image.image_bytes;
    const std::uint64_t allowed = std::min(found->second.allowed, image);
    const std::uint64_t part =
        std::max<std::uint64_t>(device_.properties().page_bytes, image / kReportParts);
    const Piece piece{
        .load = i,
        .to_copy = std::min({allowed - load.copied, kPieceBytes, part, link_.piece_bytes()}),
        .to_map =
            std::min(load.image.pages.size() - load.mapped,
                     std::max<std::size_t>(kPieceBytes / device_.properties().page_bytes, 1))};
    if (piece.to_copy > 0 || piece.to_map > 0) {
      first = piece;
      if (found->second.urgent) {
        break;
      }
    }
  }
  return first;
}

void Mapper::carry_out(Job job) {
  if (auto* open = std::get_if<Open>(&job)) {
    Load load{.image = std::move(*open)};
    if (!load.image.source.empty()) {
      link_.begin();
      loads_.push_back(std::move(load));
      return;
    }
    const Result<void> mapped = map(load, load.image.pages.size());
    handlers_.on_opened(load.image.model, mapped);
    return;
  }
  const Close& close = std::get<Close>(job);
  const Instant began = steady_now();
  std::erase_if(loads_, [&](const Load& load) { return load.image.model == close.model; });
  close.window->unmap_all();
  mapping_ns_ += (steady_now() - began).count();
  handlers_.on_closed(close.model);
}

Result<void> Mapper::map(Load& load, std::size_t pages) {
  const Instant began = steady_now();
  const Result<void> mapped = load.image.window->map(
      std::span(load.image.pages).subspan(load.mapped, pages), device::Access::kRead);
  mapping_ns_ += (steady_now() - began).count();
  load.mapped += mapped ? pages : 0;
  return mapped;
}

/// The device copies while the host maps: where both take about as long, a load takes half the time
/// that it would take one after the other.
void Mapper::carry_out(const Piece& piece) {
  Load& load = loads_[piece.load];
  const ModelId model = load.image.model;
  enqueue_copy(load, piece.to_copy);
  Result<void> mapped;
  if (piece.to_map > 0) {
    mapped = map(load, piece.to_map);
  }
  if (const Result<void> copied = stream_->synchronize(); !copied) {
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(piece.load));
    handlers_.on_lost(copied.error());
    return;
  }
  link_.wait(piece.to_copy);
  count_copied(load, piece.to_copy);
  const bool complete = load.copied == load.image.image_bytes;
  if (!mapped || (complete && load.mapped == load.image.pages.size())) {
    const bool opened = piece.to_map > 0;
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(piece.load));
    if (opened) {
      handlers_.on_opened(model, mapped);
    }
    return;
  }
  if (piece.to_map > 0 && load.mapped == load.image.pages.size()) {
    handlers_.on_opened(model, {});
  }
}

/// To where the pages are for good: the window shows them read only.
void Mapper::enqueue_copy(const Load& load, std::uint64_t bytes) {
  const std::size_t page_bytes = device_.properties().page_bytes;
  std::uint64_t at = load.copied;
  const std::uint64_t end = at + bytes;
  while (at < end) {
    const std::size_t page = at / page_bytes;
    const std::size_t in_page = at % page_bytes;
    const std::size_t part = std::min(static_cast<std::size_t>(end - at), page_bytes - in_page);
    stream_->copy(device_.page_address(load.image.pages[page]) + in_page,
                  device_.host_page_address(load.image.source[page]) + in_page,
                  part);
    at += part;
  }
}

void Mapper::count_copied(Load& load, std::uint64_t bytes) {
  const std::uint64_t image = load.image.image_bytes;
  load.copied += bytes;
  copied_bytes_ += bytes;
  const std::uint64_t untold = load.copied - load.told;
  if (untold > 0 &&
      (load.copied == image || untold >= std::min(kReportBytes, image / kReportParts))) {
    load.told = load.copied;
    handlers_.on_copied(load.image.model, load.copied);
  }
}

}  // namespace heddle::worker
