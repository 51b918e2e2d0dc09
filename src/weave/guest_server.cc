#include "weave/guest_server.h"

#include <numeric>
#include <string>
#include <thread>

#include "base/clock.h"
#include "ops/guest_attention.h"

namespace heddle::weave {

Result<std::unique_ptr<GuestServer>> GuestServer::create(std::shared_ptr<JobArea> area,
                                                         const std::byte* pages,
                                                         std::int64_t page_bytes,
                                                         std::string_view kernels) {
  if (const auto checked = check_geometry(area->geometry(), kernels, page_bytes); !checked) {
    return checked.error();
  }
  return std::unique_ptr<GuestServer>(new GuestServer(std::move(area), pages));
}

void GuestServer::lend(std::span<const PageId> pages) {
  const std::scoped_lock lock(lease_mutex_);
  lease_ = {pages.begin(), pages.end()};
  checked_groups_.clear();
}

Result<bool> GuestServer::serve(Duration look, Duration patience) {
  if (area_->closed()) {
    return Error{Code::kUnavailable, "guests: the pair is closed"};
  }
  if (!area_->posted().wait_past(served_, look, patience)) {
    return false;
  }
  if (area_->closed()) {
    return Error{Code::kUnavailable, "guests: the pair is closed"};
  }
  const std::uint32_t ticket = area_->posted().get();
  if (((ticket - served_) & Ticket::kMask) > Ticket::kMask / 2) {
    area_->close();
    return broken_rule("the ticket", ticket, std::to_string(served_) + " was served already");
  }
  const Instant began = steady_now();
  const JobArea::Job job = area_->job();
  const std::scoped_lock lock(lease_mutex_);
  if (const auto checked = take_step(job); !checked) {
    area_->close();
    return checked.error();
  }
  run(job);
  if (pace_ > Duration{}) {
    const std::span<const std::int32_t> numbers = table_.numbers();
    const std::int64_t positions =
        std::accumulate(numbers.begin(), numbers.begin() + job.rows, std::int64_t{0});
    std::this_thread::sleep_for(pace_ * positions - (steady_now() - began));
  }
  served_ = ticket;
  area_->served().raise(ticket);
  ++layers_;
  busy_ += steady_now() - began;
  return true;
}

/// Copies and checks what the job is about, unless a layer before was about the same.
Result<void> GuestServer::take_step(const JobArea::Job& job) {
  const Geometry& g = area_->geometry();
  if (job.layer < 0 || job.layer >= g.layers) {
    return broken_rule("the layer", job.layer, "there are " + std::to_string(g.layers));
  }
  if (job.step != step_ || job.rows != table_.rows() || table_.empty()) {
    if (const auto taken = table_.take(*area_, job.step, job.rows); !taken) {
      return taken;
    }
    checked_groups_.clear();
    step_ = job.step;
  }
  const LayerPlace& place = g.places[static_cast<std::size_t>(job.layer)];
  if (!checked_groups_.contains(place.group)) {
    if (const auto checked = table_.check(g, place, lease_); !checked) {
      return checked;
    }
    checked_groups_.insert(place.group);
  }
  return {};
}

void GuestServer::run(const JobArea::Job& job) {
  const Geometry& g = area_->geometry();
  const LayerPlace& place = g.places[static_cast<std::size_t>(job.layer)];
  std::vector<std::int32_t> begin(static_cast<std::size_t>(job.rows) + 1);
  std::iota(begin.begin(), begin.end(), 0);
  ops::attention_here(attention_of(*area_,
                                   place,
                                   const_cast<std::byte*>(pages_),
                                   begin.data(),
                                   table_.numbers().data(),
                                   job.rows));
}

}  // namespace heddle::weave
