#include "weave/stream_client.h"

#include <utility>

#include "base/clock.h"
#include "weave/step_table.h"

namespace heddle::weave {

Result<std::unique_ptr<StreamClient>> StreamClient::create(std::shared_ptr<JobArea> area,
                                                           device::Device& device,
                                                           Options options) {
  auto pinned = device.pin(area->memory().data(), area->memory().size());
  if (!pinned) {
    return pinned.error();
  }
  std::unique_ptr<StreamClient> client(
      new StreamClient(std::move(area), std::move(*pinned), options));
  // Whoever was here before may have left the flags anywhere.
  const std::uint32_t posted = client->area_->layer_posted().load();
  const std::uint32_t served = client->area_->layer_served().load();
  client->ticket_ = ((before(posted, served) ? served : posted) | 1U) + 1;
  client->last_ = client->ticket_;
  client->step_ = client->area_->posted().get();
  client->asked_step_ = client->step_;
  if (const auto started = client->watch_.start(); !started) {
    return started.error();
  }
  return client;
}

void StreamClient::begin_step(std::span<const ops::GuestSequence> sequences) {
  std::uint32_t groups = 0;
  for (std::size_t g = 0; !sequences.empty() && g < sequences[0].blocks.size(); ++g) {
    groups |= sequences[0].blocks[g].empty() ? 0U : 1U << g;
  }
  const std::scoped_lock lock(mutex_);
  lost_ = lost_ && area_->served().get() != asked_step_;
  posts_ = !lost_ && !area_->closed() && write_step(*area_, step_ + 1, sequences);
  const auto layers = static_cast<std::uint64_t>(layers_of(area_->geometry(), groups));
  layers_ += layers;
  if (!posts_) {
    unanswered_ += layers;
    return;
  }
  step_ = (step_ + 1) & Ticket::kMask;
  ticket_ = last_;  // Also where the step before failed at some layer: its tickets are its own.
  ++asked_;
  asked_step_ = step_;
  asked_layers_ = static_cast<std::uint32_t>(layers);
  last_ = ticket_ + 2 * asked_layers_;
  since_ = steady_now();
  area_->job() = {
      .step = step_, .rows = std::ssize(sequences), .groups = groups, .ticket = ticket_};
  area_->posted().raise(step_);
  watch_.wake();
}

std::optional<ops::GuestMeeting> StreamClient::meet(std::int64_t /*layer*/, std::int64_t rows) {
  if (!posts_ || rows > area_->geometry().rows) {
    return std::nullopt;
  }
  ticket_ += 2;
  return ops::GuestMeeting{.query = area_->queries().data(),
                           .state = area_->states().data(),
                           .posted = &area_->layer_posted(),
                           .served = &area_->layer_served(),
                           .ticket = ticket_};
}

/// Lets the stream go that has waited for too long, and again where a late host has taken the flag
/// back since, until that is through with the step.
bool StreamClient::look() {
  const std::scoped_lock lock(mutex_);
  if (area_->served().get() == asked_step_) {
    return false;
  }
  const std::uint32_t posted = area_->layer_posted().load();
  const std::uint32_t served = area_->layer_served().load();
  const Instant now = steady_now();
  if (posted != posted_ || served != served_ || !before(served, posted)) {
    posted_ = posted;
    served_ = served;
    since_ = now;
  }
  if (!lost_ && (area_->closed() || now - since_ >= options_.patience)) {
    lost_ = true;
    ++let_go_of_;
    // An answer is the ticket itself; the flag may still be where an earlier step was let go.
    const std::uint32_t first = last_ - 2 * asked_layers_;
    unanswered_ += before(served, first) ? asked_layers_ : (last_ - served + 1) / 2;
  }
  if (lost_) {
    let_go(area_->layer_served(), last_);
  }
  return true;
}

LayerCounts StreamClient::counts() const {
  const std::scoped_lock lock(mutex_);
  return {.answered = layers_ - unanswered_, .unanswered = unanswered_};
}

std::uint64_t StreamClient::let_go_of() const {
  const std::scoped_lock lock(mutex_);
  return let_go_of_;
}

}  // namespace heddle::weave
