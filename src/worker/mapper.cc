#include "worker/mapper.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/tunables.h"
#include "device/cuda/pinned_memory.h"

namespace heddle::worker {

namespace {

/// How often a copy is reported: rarely enough not to matter, often enough to start early. A small
/// image in so many parts, about as many as a model has layers.
constexpr std::uint64_t kReportBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kReportParts = 32;
/// Copied at once: long enough that waiting for its end costs little (0.6 ms at 50 GB/s, where a
/// synchronisation takes some 10 us), short enough to turn to what is more urgent.
std::uint64_t piece_bytes() {
  return static_cast<std::uint64_t>(tuned(Tuned::kPieceMib)) << 20U;
}
/// Populated, and unmapped, between two looks at what is more urgent: a millisecond or two where
/// pages are small.
constexpr std::uint64_t kPopulateBytes = std::uint64_t{16} << 20U;
std::uint64_t unmap_bytes() {
  return static_cast<std::uint64_t>(tuned(Tuned::kUnmapMib)) << 20U;
}

}  // namespace

Mapper::Mapper(device::Device& device, std::uint64_t bandwidth, Handlers handlers)
    : device_(device),
      ahead_(device.properties().asynchronous),
      handlers_(std::move(handlers)),
      kept_(device),
      link_(bandwidth),
      paced_(bandwidth > 0),
      thread_([this] { run(); }) {
  if (ahead_) {
    map_thread_ = std::thread([this] { run_mappings(); });
  }
}

Mapper::~Mapper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  maps_.notify_one();
  thread_.join();
  if (map_thread_.joinable()) {
    map_thread_.join();
  }
}

void Mapper::open(Open job) {
  {
    const std::lock_guard lock(mutex_);
    sources_[job.model] = {.allowed = job.ready_bytes};
    jobs_.emplace_back(std::move(job));
  }
  woken_.notify_one();
}

void Mapper::close(ModelId model, memory::Window* window, After after) {
  {
    const std::lock_guard lock(mutex_);
    sources_.erase(model);
    jobs_.emplace_back(Close{.model = model, .window = window, .after = after});
  }
  woken_.notify_one();
}

void Mapper::drop_kept(std::span<const PageId> pages) {
  kept_.drop(pages);
}

void Mapper::when_dropped(std::vector<PageId> pages, Dropped then) {
  if (!kept_.shows(pages)) {
    then(std::move(pages));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    leaving_.push_back({.pages = std::move(pages), .then = std::move(then)});
  }
  woken_.notify_one();
}

void Mapper::let_go(std::span<const PageId> pages) {
  {
    const std::lock_guard lock(mutex_);
    kept_.let_go(pages);
  }
  woken_.notify_one();
}

void Mapper::let_go(const memory::Window& window) {
  {
    const std::lock_guard lock(mutex_);
    kept_.let_go(window);
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
  shared_.notify_all();
}

void Mapper::prioritise(ModelId model) {
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
    Piece piece;
    std::optional<Error> failed;
    bool waited = false;
    bool loads = false;
    {
      std::unique_lock lock(mutex_);
      waited = !has_load_work();
      woken_.wait(lock, [&] { return stopping_ || has_work(); });
      if (stopping_) {
        return;
      }
      loads = has_load_work();
      failed = std::exchange(failed_, std::nullopt);
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      } else {
        piece = take_piece();
      }
    }
    pulse_.begin(policy::Doing::kCopy);
    if (failed) {
      handlers_.on_lost(*failed);
    }
    if (job.has_value()) {
      carry_out(std::move(*job));
    } else if (!loads) {
      tidy();
    } else {
      if (waited) {
        link_.begin();  // An idle link saves nothing up.
      }
      carry_out(piece);
    }
    report();
    pulse_.end();
  }
}

bool Mapper::has_work() {
  if (mapping_) {
    return has_load_work();  // The others would wait for what is being mapped.
  }
  return has_load_work() || !leaving_.empty() || !unpopulated_.empty() || kept_.has_let_go();
}

bool Mapper::has_load_work() {
  return !jobs_.empty() || failed_ || !copying_.empty() || (mapping_ && mapping_->outcome) ||
         next_to_copy() != nullptr || next_to_map() != nullptr || next_to_report() != nullptr;
}

std::uint64_t Mapper::allowed(const Load& load) const {
  return std::min(sources_.at(load.image.model).allowed, load.image.image_bytes);
}

/// A page at least, so that a small image is no heap of crumbs.
std::uint64_t Mapper::part_bytes(const Load& load, std::uint64_t most) const {
  return std::min(most,
                  std::max<std::uint64_t>(device_.properties().page_bytes,
                                          load.image.image_bytes / kReportParts));
}

Mapper::Load* Mapper::next_to_copy() {
  return choose([this](const Load& load) { return load.parts.has(allowed(load)); });
}

/// The load whose window lacks least: of two, none waits longer for the other than its own takes.
/// None while one is being mapped by the other thread.
Mapper::Load* Mapper::next_to_map() {
  if (mapping_) {
    return nullptr;
  }
  const auto lacks = [](const Load& load) { return load.image.pages.size() - load.mapped; };
  Load* least = nullptr;
  for (Load& load : loads_) {
    if (!load.ended && sources_.contains(load.image.model) && lacks(load) > 0 &&
        (least == nullptr || lacks(load) < lacks(*least))) {
      least = &load;
    }
  }
  return least;
}

Mapper::Piece Mapper::take_piece() {
  Piece piece{.copied = next_to_copy(), .mapped = next_to_map()};
  if (piece.copied != nullptr) {
    const std::uint64_t most = paced_ ? link_.piece_bytes() : piece_bytes();
    piece.part = piece.copied->parts.take(part_bytes(*piece.copied, most), allowed(*piece.copied));
  }
  return piece;
}

/// One that has more in place than was said, or is done.
Mapper::Load* Mapper::next_to_report() {
  const auto found = std::ranges::find_if(loads_, [](const Load& load) {
    const std::uint64_t image = load.image.image_bytes;
    const std::uint64_t untold = load.parts.in_place() - load.told;
    const bool complete = load.parts.complete();
    return (untold > 0 && (complete || untold >= std::min(kReportBytes, image / kReportParts))) ||
           (complete && load.mapped == load.image.pages.size());
  });
  return found == loads_.end() ? nullptr : &*found;
}

void Mapper::report() {
  for (;;) {
    Load* load = nullptr;
    std::uint64_t in_place = 0;
    {
      const std::lock_guard lock(mutex_);
      load = next_to_report();
      if (load == nullptr) {
        return;
      }
      in_place = load->parts.in_place();
    }
    const ModelId model = load->image.model;
    const bool news = in_place > std::exchange(load->told, in_place);
    const bool done =
        in_place == load->image.image_bytes && load->mapped == load->image.pages.size();
    if (done) {
      remove(*load);
    }
    if (news) {
      handlers_.on_copied(model, in_place);
    }
  }
}

/// Forgets a load when nobody writes any more of it, nor maps.
void Mapper::remove(Load& load) {
  wait_for_copies_of(load);
  std::unique_lock lock(mutex_);
  load.ended = true;
  woken_.wait(lock, [&] {
    return load.writing == 0 && (!mapping_ || mapping_->load != &load || mapping_->outcome);
  });
  if (mapping_ && mapping_->load == &load) {
    mapping_.reset();
  }
  loads_.remove_if([&](const Load& each) { return &each == &load; });
}

void Mapper::carry_out(Job job) {
  if (auto* open = std::get_if<Open>(&job)) {
    ImageParts parts(open->image_bytes);
    Load load{.number = ++loads_begun_, .image = std::move(*open), .parts = std::move(parts)};
    kept_.hold(*load.image.window);
    if (load.image.source.empty() && ahead_) {
      load.image.image_bytes = 0;  // There is nothing to copy, and the window to map.
      load.parts = ImageParts(0);
    }
    if (!load.image.source.empty() || ahead_) {
      link_.begin();
      const std::lock_guard lock(mutex_);
      loads_.push_back(std::move(load));
      shared_.notify_all();
      return;
    }
    const Result<void> mapped = map(load, load.image.pages.size());
    if (mapped) {
      unpopulated_.push_back(load.image.window);
    }
    handlers_.on_opened(load.image.model, mapped);
    return;
  }
  const Close& close = std::get<Close>(job);
  const Instant began = steady_now();
  const auto found = std::ranges::find_if(
      loads_, [&](const Load& load) { return load.image.model == close.model; });
  if (found != loads_.end()) {
    remove(*found);
  }
  while (drop_leaving(SIZE_MAX)) {  // Who evicts has what the load gave up for it.
  }
  if (close.window != nullptr) {
    std::erase(unpopulated_, close.window);
    kept_.keep(*close.window);
    if (close.after == After::kLetGo) {
      kept_.let_go(*close.window);
    }
  }
  mapping_ns_ += (steady_now() - began).count();
  handlers_.on_closed(close.model);
}

/// The next pages of a load's window.
Result<void> Mapper::map(const Load& load, std::size_t pages) {
  const Instant began = steady_now();
  if (load.image.source.empty() && load.mapped == 0) {
    kept_.drop(load.image.pages, load.image.window);
  }
  const std::span<const PageId> next = std::span(load.image.pages).subspan(load.mapped, pages);
  memory::Window& window = *load.image.window;
  Result<void> mapped = kept_.map(window, next, device::Access::kRead);
  if (!mapped && kept_.bytes() > 0) {
    kept_.drop_all();  // Of mappings or addresses of the driver's there may be too few.
    mapped = window.map(next, device::Access::kRead);
  }
  mapping_ns_ += (steady_now() - began).count();
  return mapped;
}

/// What nobody waits for, a little of it.
void Mapper::tidy() {
  const Instant began = steady_now();
  const std::size_t pages =
      std::max<std::size_t>(unmap_bytes() / device_.properties().page_bytes, 1);
  if (!drop_leaving(pages)) {
    if (unpopulated_.empty()) {
      kept_.drop_some(pages);
    } else if (!unpopulated_.back()->populate_some(kPopulateBytes)) {
      unpopulated_.pop_back();
    }
  }
  mapping_ns_ += (steady_now() - began).count();
}

/// Up to `most` pages of the first that leave. False where there is nothing to do.
bool Mapper::drop_leaving(std::size_t most) {
  Leaving* first = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_.empty()) {
      return false;
    }
    first = &leaving_.front();
  }
  const std::size_t count = std::min(most, first->pages.size() - first->dropped);
  kept_.drop(std::span(first->pages).subspan(first->dropped, count));
  first->dropped += count;
  if (first->dropped == first->pages.size()) {
    first->then(std::move(first->pages));
    const std::lock_guard lock(mutex_);
    leaving_.pop_front();
  }
  return true;
}

/// The device copies while the host maps: where both take about as long, a load takes half the time
/// that it would take one after the other.
void Mapper::carry_out(const Piece& piece) {
  if (ahead_) {
    carry_out_ahead(piece);
    return;
  }
  if (piece.part) {
    drop_kept_of(*piece.copied, *piece.part);
    enqueue_copy(*piece.copied, *piece.part);
  }
  const Result<void> mapped = piece.mapped == nullptr ? Result<void>() : map_more(*piece.mapped);
  if (piece.part) {
    if (const Result<void> copied = stream_->synchronize(); !copied) {
      remove(*piece.copied);
      handlers_.on_lost(copied.error());
      return;
    }
    link_.wait(piece.part->bytes());
    copied_bytes_ += piece.part->bytes();
    const std::lock_guard lock(mutex_);
    piece.copied->parts.put_in_place(*piece.part);
  }
  if (!mapped) {  // Not before the copy into its pages has ended.
    const ModelId model = piece.mapped->image.model;
    remove(*piece.mapped);
    handlers_.on_opened(model, mapped);
  }
}

/// Of a load, pages to map before something else may be.
std::size_t Mapper::pages_at_once(const Load& load) const {
  const std::size_t most =
      std::max<std::size_t>(piece_bytes() / device_.properties().page_bytes, 1);
  return std::min(load.image.pages.size() - load.mapped, most);
}

/// The model is open with the last page, before the link is waited for.
Result<void> Mapper::map_more(Load& load) {
  const std::size_t pages = pages_at_once(load);
  const Result<void> mapped = map(load, pages);
  if (mapped) {
    mapped_more(load, pages);
  }
  return mapped;
}

void Mapper::mapped_more(Load& load, std::size_t pages) {
  load.mapped += pages;
  if (load.mapped == load.image.pages.size()) {
    const ModelId model = load.image.model;
    unpopulated_.push_back(load.image.window);
    report();  // What is in place is known before the window is.
    handlers_.on_opened(model, {});
  }
}

/// Before pages are written. A GPU's kept windows may wait: to unmap a page takes about as long as
/// to copy it, and nobody looks.
void Mapper::drop_kept_of(const Load& load, const ImagePart& part) {
  if (!device_.properties().asynchronous) {
    const std::uint64_t page_bytes = device_.properties().page_bytes;
    const std::size_t first = part.begin / page_bytes;
    const std::size_t end = (part.end + page_bytes - 1) / page_bytes;
    kept_.drop(std::span(load.image.pages).subspan(first, end - first), load.image.window);
  }
}

/// To where the pages are for good: the window shows them read only. Pages that follow each other
/// on both sides are one copy.
void Mapper::enqueue_copy(const Load& load, const ImagePart& part) {
  const std::byte* const host = device_.host_page_address(PageId(0));
  Run run;
  for_pieces(load.image, part, [&](const Share::Piece& piece) {
    std::byte* const to = device_.page_address(piece.target) + piece.offset;
    const std::byte* const from = device_.host_page_address(piece.source) + piece.offset;
    const bool goes_on = run.bytes > 0 && to == run.to + run.bytes &&
                         from == run.from + run.bytes &&
                         static_cast<std::uint64_t>(from - host) % device::kPinBytesMax != 0;
    if (!goes_on) {
      enqueue(run);
      run = {.to = to, .from = from};
    }
    run.bytes += piece.bytes;
  });
  enqueue(run);
}

void Mapper::enqueue(const Run& run) {
  if (run.bytes > 0) {
    stream_->copy(run.to, run.from, run.bytes);
  }
}

// ---- On asynchronous devices ----

/// Enqueues the piece behind the one that the device is at, and waits for that only when there are
/// as many as there may be, or nothing else is to be done.
void Mapper::carry_out_ahead(const Piece& piece) {
  if (piece.mapped != nullptr) {
    begin_mapping(*piece.mapped);
  }
  if (piece.part) {
    drop_kept_of(*piece.copied, *piece.part);
    enqueue_copy(*piece.copied, *piece.part);
    copying_.push_back({.load = piece.copied, .part = *piece.part, .mark = stream_->mark()});
  }
  if (!copying_.empty() &&
      (!piece.part || std::cmp_equal(copying_.size(), tuned(Tuned::kPieces)))) {
    wait_for_copy();
  }
  take_mapping();
}

/// Waits for the oldest piece. Where the device is lost nothing more is taken of loads.
void Mapper::wait_for_copy() {
  const Copying oldest = copying_.front();
  const Result<void> copied = stream_->wait(oldest.mark);
  if (!copied) {
    const std::lock_guard lock(mutex_);
    for (const Copying& each : copying_) {
      each.load->ended = true;
    }
    copying_.clear();
    failed_ = copied.error();
    return;
  }
  copying_.pop_front();
  link_.wait(oldest.part.bytes());
  copied_bytes_ += oldest.part.bytes();
  const std::lock_guard lock(mutex_);
  oldest.load->parts.put_in_place(oldest.part);
}

void Mapper::wait_for_copies_of(const Load& load) {
  while (std::ranges::any_of(copying_, [&](const Copying& each) { return each.load == &load; })) {
    wait_for_copy();
  }
}

void Mapper::begin_mapping(Load& load) {
  {
    const std::lock_guard lock(mutex_);
    mapping_ = Mapping{.load = &load, .pages = pages_at_once(load)};
  }
  maps_.notify_one();
}

/// The other thread. A load that it is at is not removed, and what it reads of it not changed.
void Mapper::run_mappings() {
  std::unique_lock lock(mutex_);
  for (;;) {
    maps_.wait(lock, [this] { return stopping_ || (mapping_ && !mapping_->outcome); });
    if (stopping_) {
      return;
    }
    const Mapping wanted = *mapping_;
    lock.unlock();
    Result<void> outcome = map(*wanted.load, wanted.pages);
    lock.lock();
    mapping_->outcome = std::move(outcome);
    woken_.notify_one();
  }
}

/// Takes in what the other thread mapped, if it has.
void Mapper::take_mapping() {
  std::optional<Mapping> done;
  {
    const std::lock_guard lock(mutex_);
    if (!mapping_ || !mapping_->outcome) {
      return;
    }
    done = std::exchange(mapping_, std::nullopt);
  }
  Load& load = *done->load;
  if (*done->outcome) {
    mapped_more(load, done->pages);
    return;
  }
  const ModelId model = load.image.model;
  remove(load);
  handlers_.on_opened(model, *done->outcome);
}

}  // namespace heddle::worker
