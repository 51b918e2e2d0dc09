#include "worker/mapper.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace heddle::worker {

namespace {

/// How often a copy is reported: rarely enough not to matter, often enough to start early. A small
/// image in so many parts, about as many as a model has layers.
constexpr std::uint64_t kReportBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kReportParts = 32;

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
  for (;;) {
    std::optional<Job> job;
    std::optional<Piece> piece;
    bool waited = false;
    {
      std::unique_lock lock(mutex_);
      waited = jobs_.empty() && !copyable().has_value();
      woken_.wait(lock, [&] { return stopping_ || !jobs_.empty() || copyable().has_value(); });
      if (stopping_) {
        return;
      }
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      } else {
        piece = copyable();
      }
    }
    if (job.has_value()) {
      carry_out(std::move(*job));
    } else {
      if (waited) {
        link_.begin();  // An idle link saves nothing up.
      }
      copy_piece(*piece);
    }
  }
}

/// The first copy that can go on, those that are urgent first. Called with the lock held.
std::optional<Mapper::Piece> Mapper::copyable() const {
  std::optional<Piece> first;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    const auto found = sources_.find(copy.image.model);
    if (found == sources_.end()) {
      continue;
    }
    const std::uint64_t allowed = std::min(found->second.allowed, copy.image.image_bytes);
    if (allowed > copy.done && (found->second.urgent || !first)) {
      first = Piece{.copy = i, .allowed = allowed};
      if (found->second.urgent) {
        break;
      }
    }
  }
  return first;
}

void Mapper::carry_out(Job job) {
  const Instant began = steady_now();
  if (auto* open = std::get_if<Open>(&job)) {
    const ModelId model = open->model;
    const Result<void> mapped = open->window->map(open->pages, device::Access::kRead);
    mapping_ns_ += (steady_now() - began).count();
    if (mapped && !open->source.empty()) {
      link_.begin();
      copies_.push_back({.image = std::move(*open)});
    }
    handlers_.on_opened(model, mapped);
    return;
  }
  const Close& close = std::get<Close>(job);
  std::erase_if(copies_, [&](const Copy& copy) { return copy.image.model == close.model; });
  close.window->unmap_all();
  mapping_ns_ += (steady_now() - began).count();
  handlers_.on_closed(close.model);
}

void Mapper::copy_piece(const Piece& piece) {
  Copy& copy = copies_[piece.copy];
  const std::size_t page_bytes = device_.properties().page_bytes;
  const std::size_t in_page = copy.done % page_bytes;
  const std::size_t bytes = std::min({static_cast<std::size_t>(piece.allowed - copy.done),
                                      page_bytes - in_page,
                                      link_.piece_bytes()});
  const std::size_t page = copy.done / page_bytes;
  std::memcpy(device_.page_address(copy.image.pages[page]) + in_page,
              device_.page_address(copy.image.source[page]) + in_page,
              bytes);
  link_.wait(bytes);
  copy.done += bytes;
  copied_bytes_ += bytes;
  const bool complete = copy.done == copy.image.image_bytes;
  if (complete ||
      copy.done - copy.told >= std::min(kReportBytes, copy.image.image_bytes / kReportParts)) {
    copy.told = copy.done;
    handlers_.on_copied(copy.image.model, copy.done);
  }
  if (complete) {
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(piece.copy));
  }
}

}  // namespace heddle::worker
