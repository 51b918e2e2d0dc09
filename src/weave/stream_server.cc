#include "weave/stream_server.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "ops/attention.h"

namespace heddle::weave {
namespace {

/// How often it is looked whether the hot side has gone.
constexpr Duration kEvery = std::chrono::milliseconds(5);
/// Scratch for so many parts of each row's positions; what it takes is bounded.
constexpr std::size_t kParts = 16;
constexpr std::size_t kScratchBytesMax = std::size_t{32} << 20U;

}  // namespace

Result<std::unique_ptr<StreamServer>> StreamServer::create(std::shared_ptr<JobArea> area,
                                                           const Place& place) {
  if (const auto checked = check_geometry(area->geometry(), place.kernels_name, place.page_bytes);
      !checked) {
    return checked.error();
  }
  if (!place.device.properties().flags) {
    return Error{Code::kFailedPrecondition,
                 "guests: streams of " + place.device.properties().name + " wait for no flags"};
  }
  std::unique_ptr<StreamServer> server(new StreamServer(std::move(area), place));
  server->watch_ = std::make_unique<Watch>(kEvery, [self = server.get()] { return self->look(); });
  if (const auto allocated = server->allocate(); !allocated) {
    return allocated.error();
  }
  if (const auto started = server->watch_->start(); !started) {
    return started.error();
  }
  return server;
}

Result<void> StreamServer::allocate() {
  const Geometry& g = area_->geometry();
  device::Device& device = place_.device;
  const auto numbers = static_cast<std::size_t>(g.rows + 1 + StepTable::blocks_at(g, g.groups));
  const auto states = static_cast<std::size_t>(g.rows * g.heads * (g.head_dim + 2));
  const std::size_t scratch = std::min(kParts * states * sizeof(float), kScratchBytesMax);
  const auto take = [](auto made, auto& into) -> Result<void> {
    if (!made) {
      return made.error();
    }
    into = std::move(*made);
    return {};
  };
  using device::Place;
  Result<void> done = take(device.pin(area_->memory().data(), area_->memory().size()), pinned_);
  done = done ? take(device.allocate(Place::kHost, numbers * sizeof(std::int32_t)), staged_) : done;
  done = done ? take(device.allocate(Place::kDevice, staged_.bytes()), tables_) : done;
  done = done ? take(device.allocate(Place::kDevice, scratch), scratch_) : done;
  done = done ? take(device.create_stream(), stream_) : done;
  if (done) {
    stream_->lend_scratch(scratch_.data(), scratch_.bytes());
  }
  return done;
}

void StreamServer::lend(std::span<const PageId> pages) {
  std::set<PageId> lease(pages.begin(), pages.end());
  bool less = false;
  {
    const std::scoped_lock lock(lease_mutex_);
    less = !std::ranges::includes(lease, lease_);
    lease_ = std::move(lease);
  }
  if (less) {
    const std::scoped_lock no_step_runs(step_mutex_);
  }
}

Result<bool> StreamServer::serve(Duration patience) {
  const auto is_closed = Error{Code::kUnavailable, "guests: the pair is closed"};
  if (area_->closed()) {
    return is_closed;
  }
  if (!area_->posted().wait_past(served_, Duration{}, patience)) {
    return false;
  }
  if (area_->closed()) {
    return is_closed;
  }
  const std::uint32_t ticket = area_->posted().get();
  const JobArea::Job job = area_->job();
  const std::scoped_lock lock(step_mutex_);
  Result<void> done = take_step(job);
  if (done) {
    enqueue(job);
    done = stream_->synchronize();
    running_ = false;
  }
  if (!done) {
    area_->close();
    return done.error();
  }
  ++steps_;
  layers_ += static_cast<std::uint64_t>(layers_of(area_->geometry(), job.groups));
  served_ = ticket;
  area_->served().raise(ticket);
  return true;
}

Result<void> StreamServer::take_step(const JobArea::Job& job) {
  const Geometry& g = area_->geometry();
  if (job.groups >> g.groups != 0) {
    return broken_rule("the set of groups", job.groups, "there are " + std::to_string(g.groups));
  }
  if (const auto taken = table_.take(*area_, job.step, job.rows); !taken) {
    return taken;
  }
  const std::scoped_lock lock(lease_mutex_);
  for (std::int64_t layer = 0; layer < g.layers; ++layer) {
    const LayerPlace& place = g.places[static_cast<std::size_t>(layer)];
    if ((job.groups >> place.group & 1U) == 0) {
      continue;
    }
    if (const auto checked = table_.check(g, place, lease_); !checked) {
      return checked;
    }
  }
  return {};
}

void StreamServer::enqueue(const JobArea::Job& job) {
  const Geometry& g = area_->geometry();
  auto* const staged = reinterpret_cast<std::int32_t*>(staged_.data());
  const auto send = [&](std::int64_t first, std::int64_t count) {
    stream_->copy(tables_.data() + first * 4,
                  staged_.data() + first * 4,
                  static_cast<std::size_t>(count) * 4);
  };
  std::iota(staged, staged + g.rows + 1, 0);
  std::copy_n(table_.numbers().begin(), g.rows, staged + g.rows + 1);
  send(0, 2 * g.rows + 1);
  for (std::int64_t group = 0; group < g.groups; ++group) {  // Of the rows that there are.
    const std::int64_t at = StepTable::blocks_at(g, group);
    if ((job.groups >> group & 1U) != 0) {
      std::copy_n(table_.numbers().begin() + at, job.rows * g.blocks, staged + g.rows + 1 + at);
      send(g.rows + 1 + at, job.rows * g.blocks);
    }
  }
  std::uint32_t ticket = job.ticket;
  last_ = ticket + 2 * static_cast<std::uint32_t>(layers_of(g, job.groups));
  running_ = true;
  watch_->wake();
  for (std::int64_t layer = 0; layer < g.layers; ++layer) {
    const LayerPlace& place = g.places[static_cast<std::size_t>(layer)];
    if ((job.groups >> place.group & 1U) != 0) {
      ticket += 2;
      stream_->await_flag(area_->layer_posted(), ticket);
      enqueue_layer(place, job.rows);
      stream_->raise_flag(area_->layer_served(), ticket);
    }
  }
}

void StreamServer::enqueue_layer(const LayerPlace& layer, std::int64_t rows) {
  const Geometry& g = area_->geometry();
  const auto* const begin = reinterpret_cast<const std::int32_t*>(tables_.data());
  const std::int32_t* const numbers = begin + g.rows + 1;
  ops::OpContext context{.stream = *stream_, .kernels = place_.kernels};
  ops::attention(context, attention_of(*area_, layer, place_.pages, begin, numbers, rows));
}

/// A stream that waits for queries of a pair that is closed goes on, over whatever is there.
bool StreamServer::look() {
  if (running_ && area_->closed()) {
    let_go(area_->layer_posted(), last_);
  }
  return running_;
}

}  // namespace heddle::weave
