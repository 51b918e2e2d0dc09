#include "core/prefill_queue.h"

#include <algorithm>
#include <utility>

namespace heddle::core {
namespace {

using policy::QueuedRequest;

RequestId queued_as(policy::SequenceId id) {
  return RequestId(id.value());
}
policy::SequenceId sequence(RequestId id) {
  return policy::SequenceId(id.value());
}

}  // namespace

/// What the priorities so far leave to those after them.
struct PrefillQueue::Rest {
  PrefillState state{};
  std::set<ModelId> blocked{};  ///< Somebody of the model waits for pages: nobody overtakes it.

  void take(const QueuedRequest& request) {
    state.dispatched += request.prefill;
    state.free_pages = std::max<std::int64_t>(0, state.free_pages - request.kv_pages);
  }
};

std::vector<policy::SequenceId> PrefillQueue::pass(const PrefillState& state,
                                                   const std::vector<QueuedPrefill>& waiting) {
  std::map<std::int32_t, std::vector<QueuedRequest>> by_priority;
  std::set<policy::SequenceId> still_late;
  for (const QueuedPrefill& entry : waiting) {
    const bool late = late_.contains(entry.id);
    by_priority[entry.priority].push_back({.id = queued_as(entry.id),
                                           .model = entry.model,
                                           .arrived = entry.arrived,
                                           .deadline = entry.due,
                                           .prefill = entry.prefill,
                                           .kv_pages = entry.kv_pages,
                                           .late = late});
    if (late) {
      still_late.insert(entry.id);
    }
  }
  late_ = std::move(still_late);
  std::erase_if(credits_, [&](const auto& entry) { return !by_priority.contains(entry.first); });

  Rest rest{.state = state};
  std::vector<policy::SequenceId> admit;
  for (auto& [priority, requests] : by_priority) {
    std::erase_if(requests, [&](const QueuedRequest& r) { return rest.blocked.contains(r.model); });
    pass_one(priority, std::move(requests), rest, admit);
  }
  return admit;
}

void PrefillQueue::pass_one(std::int32_t priority,
                            std::vector<QueuedRequest> requests,
                            Rest& rest,
                            std::vector<policy::SequenceId>& admit) {
  std::map<RequestId, const QueuedRequest*> by_id;
  for (const QueuedRequest& request : requests) {
    by_id[request.id] = &request;
  }
  const policy::QueueOptions options{
      .ahead = rest.state.ahead, .together = true, .spare_time = true};
  const policy::QueuePlan plan = policy::plan_queue({.now = rest.state.now,
                                                     .dispatched = rest.state.dispatched,
                                                     .free_pages = rest.state.free_pages,
                                                     .late_credit = credits_[priority],
                                                     .requests = requests},
                                                    options);
  Duration longest_late{};
  for (const RequestId id : plan.late) {
    longest_late = std::max(longest_late, by_id.at(id)->prefill);
  }
  Duration& credit = credits_[priority] = plan.late_credit;
  for (const RequestId id : plan.dispatch) {
    const QueuedRequest& request = *by_id.at(id);
    admit.push_back(sequence(id));
    rest.take(request);
    if (request.late) {
      credit = std::min(credit + request.prefill / options.late_part, longest_late);
    }
  }
  for (const RequestId id : plan.refused) {
    late_.insert(sequence(id));
  }
  for (const RequestId id : plan.blocked) {
    rest.blocked.insert(by_id.at(id)->model);
    if (rest.state.now > by_id.at(id)->deadline) {
      late_.insert(sequence(id));
    }
  }
  const std::set<RequestId> sent(plan.dispatch.begin(), plan.dispatch.end());
  for (const policy::PlannedRequest& planned : plan.on_time) {
    if (!sent.contains(planned.id)) {
      rest.take(*by_id.at(planned.id));
    }
  }
  for (const RequestId id : plan.late) {
    rest.take(*by_id.at(id));
  }
}

}  // namespace heddle::core
