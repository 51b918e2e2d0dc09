#include "weave/guest_client.h"

#include <cstring>

#include "base/clock.h"
#include "weave/step_table.h"

namespace heddle::weave {

void GuestClient::begin_step(std::span<const ops::GuestSequence> sequences) {
  ++step_;
  lost_ = lost_ && area_->served().get() != ticket_;  // It is at what it was asked for last.
  fits_ = write_step(*area_, step_, sequences);
}

void GuestClient::post(const ops::GuestRows& rows) {
  const Geometry& g = area_->geometry();
  posted_ = fits_ && !lost_ && !area_->closed() && rows.rows <= g.rows;
  if (!posted_) {
    return;
  }
  const std::int64_t width = g.heads * g.head_dim;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    std::memcpy(area_->queries().data() + row * width,
                rows.query + row * rows.query_stride,
                static_cast<std::size_t>(width) * sizeof(float));
  }
  area_->job() = {.step = step_, .layer = rows.layer, .rows = rows.rows};
  ticket_ = (ticket_ + 1) & Ticket::kMask;
  area_->posted().raise(ticket_);
  posted_at_ = steady_now();
}

bool GuestClient::await(const ops::GuestRows& rows) {
  const Geometry& g = area_->geometry();
  const Instant began = steady_now();
  bool answered = posted_;
  for (std::uint32_t served = area_->served().get(); answered && served != ticket_;
       served = area_->served().get()) {
    const Duration left = options_.patience - (steady_now() - began);
    answered = !area_->closed() && left > Duration{} &&
               area_->served().wait_past(served, options_.look, left);
  }
  counts_.waited += steady_now() - began;
  if (!answered) {
    lost_ = lost_ || posted_;
    ++counts_.unanswered;
    return false;
  }
  ++counts_.answered;
  counts_.own += began - posted_at_;
  const std::int64_t width = g.heads * (g.head_dim + 2);
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    std::memcpy(rows.state + row * rows.state_stride,
                area_->states().data() + row * width,
                static_cast<std::size_t>(width) * sizeof(float));
  }
  return true;
}

}  // namespace heddle::weave
