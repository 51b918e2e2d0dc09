#include "sim/link.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heddle::sim {
namespace {

/// What rounding may leave of a flow that is done.
constexpr double kCrumb = 1.0;

double seconds(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}

}  // namespace

const Link::Queue* Link::active() const {
  const auto* found = std::find_if(
      queues_.begin(), queues_.end(), [](const Queue& queue) { return !queue.order.empty(); });
  return found == queues_.end() ? nullptr : found;
}

double Link::left(const Queue& queue, FlowId /*id*/, const Flow& flow) const {
  return service_ == LinkService::kFairShare ? flow.key - queue.clock : flow.remaining;
}

void Link::advance(Instant now) {
  HEDDLE_CHECK(now >= advanced_);
  const double served = rate_ * seconds(now - advanced_);
  advanced_ = now;
  auto* queue = const_cast<Queue*>(active());  // NOLINT(*-const-cast): one of our own queues.
  if (queue == nullptr || served <= 0) {
    return;
  }
  if (service_ == LinkService::kFairShare) {
    queue->clock += served / static_cast<double>(queue->order.size());
  } else {
    Flow& head = flows_.at(queue->order.begin()->second);
    head.remaining = std::max(0.0, head.remaining - served);
  }
  moved_ += served;
}

void Link::insert(FlowId id, double bytes, LinkClass service_class, Instant deadline) {
  Queue& queue = this->queue(service_class);
  if (queue.order.empty()) {
    queue.clock = 0;  // Small numbers keep their precision.
  }
  const double key = service_ == LinkService::kFairShare
                         ? queue.clock + bytes
                         : static_cast<double>(deadline.time_since_epoch().count());
  HEDDLE_CHECK(
      flows_.emplace(id, Flow{.service_class = service_class, .key = key, .remaining = bytes})
          .second);
  queue.order.emplace(key, id);
}

void Link::erase(FlowId id) {
  const auto found = flows_.find(id);
  queue(found->second.service_class).order.erase({found->second.key, id});
  flows_.erase(found);
}

void Link::add(Instant now, FlowId id, double bytes, LinkClass service_class, Instant deadline) {
  HEDDLE_CHECK(bytes > 0);
  advance(now);
  insert(id, bytes, service_class, deadline);
}

double Link::cancel(Instant now, FlowId id) {
  advance(now);
  const auto found = flows_.find(id);
  if (found == flows_.end()) {
    return 0;
  }
  const double bytes = left(queue(found->second.service_class), id, found->second);
  erase(id);
  return std::max(0.0, bytes);
}

void Link::reclassify(Instant now, FlowId id, LinkClass service_class) {
  const auto found = flows_.find(id);
  if (found == flows_.end() || found->second.service_class == service_class) {
    return;
  }
  const double key = found->second.key;
  const bool by_deadline = service_ == LinkService::kEarliestDeadline;
  const double bytes = cancel(now, id);
  insert(id,
         std::max(bytes, kCrumb),
         service_class,
         by_deadline ? Instant(Duration(static_cast<std::int64_t>(key))) : Instant{});
}

void Link::set_rate(Instant now, double bytes_per_second) {
  HEDDLE_CHECK(bytes_per_second >= 0);
  advance(now);
  rate_ = bytes_per_second;
}

std::optional<Instant> Link::next_done() const {
  const Queue* queue = active();
  if (queue == nullptr || rate_ <= 0) {
    return std::nullopt;
  }
  const FlowId id = queue->order.begin()->second;
  const double bytes = left(*queue, id, flows_.at(id));
  const double sharers =
      service_ == LinkService::kFairShare ? static_cast<double>(queue->order.size()) : 1.0;
  const double wait = std::max(1.0, std::ceil(bytes * sharers / rate_ * 1e9));
  return bytes <= kCrumb ? advanced_ : advanced_ + Duration(static_cast<std::int64_t>(wait));
}

std::vector<FlowId> Link::take_done(Instant now) {
  advance(now);
  std::vector<FlowId> done;
  for (Queue& queue : queues_) {
    while (!queue.order.empty()) {
      const FlowId id = queue.order.begin()->second;
      if (left(queue, id, flows_.at(id)) > kCrumb) {
        break;
      }
      done.push_back(id);
      erase(id);
    }
  }
  return done;
}

std::size_t Link::flows_before(LinkClass service_class) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(service_class); ++i) {
    count += queues_.at(i).order.size();
  }
  return count;
}

double Link::remaining(Instant now, FlowId id) const {
  Link later = *this;
  later.advance(now);
  return later.cancel(now, id);
}

}  // namespace heddle::sim
