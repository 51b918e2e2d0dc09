#include "core/prefill_queue.h"

#include <algorithm>
#include <optional>
#include <tuple>
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

/// What the places so far leave to those after them.
struct PrefillQueue::Rest {
  PrefillState state{};
  std::set<ModelId> blocked{};  ///< Somebody of the model waits for pages: nobody overtakes it.

  void take(const QueuedRequest& request) {
    state.dispatched += request.prefill;
    state.free_pages = std::max<std::int64_t>(0, state.free_pages - request.kv_pages);
  }
};

/// To those of one priority that have none yet. `waiting`: all of it, by deadline.
void PrefillQueue::give_turns(const std::vector<const QueuedPrefill*>& waiting) {
  struct Line {
    std::size_t last = 0;   ///< The client's last turn.
    std::size_t count = 0;  ///< How many it has in that.
  };
  std::map<std::uint64_t, Line> lines;
  std::optional<std::size_t> on;  // The turn that is on.
  const auto join = [&](std::uint64_t client, std::size_t turn) {
    Line& line = lines.try_emplace(client, Line{.last = turn}).first->second;
    line.count = turn > line.last ? 1 : line.count + (turn == line.last ? 1 : 0);
    line.last = std::max(line.last, turn);
  };
  for (const QueuedPrefill* entry : waiting) {
    if (const auto found = turns_.find(entry->id); found != turns_.end()) {
      join(entry->client, found->second);
      on = std::min(on.value_or(found->second), found->second);
    }
  }
  for (const QueuedPrefill* entry : waiting) {
    if (turns_.contains(entry->id)) {
      continue;
    }
    const auto line = lines.find(entry->client);
    const std::size_t turn = line == lines.end()          ? on.value_or(0)
                             : line->second.count < kTurn ? line->second.last
                                                          : line->second.last + 1;
    turns_[entry->id] = turn;
    join(entry->client, turn);
  }
}

std::map<PrefillQueue::Place, std::vector<const QueuedPrefill*>> PrefillQueue::places(
    const std::vector<QueuedPrefill>& waiting) {
  std::map<std::int32_t, std::vector<const QueuedPrefill*>> by_priority;
  std::map<policy::SequenceId, std::size_t> still;
  for (const QueuedPrefill& entry : waiting) {
    by_priority[entry.priority].push_back(&entry);
    if (const auto found = turns_.find(entry.id); found != turns_.end()) {
      still.insert(*found);
    }
  }
  turns_ = std::move(still);
  std::map<Place, std::vector<const QueuedPrefill*>> places;
  for (auto& [priority, entries] : by_priority) {
    std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
      return std::tie(a->due, a->id) < std::tie(b->due, b->id);
    });
    give_turns(entries);
    const bool one_client = std::all_of(entries.begin(), entries.end(), [&](const auto* entry) {
      return entry->client == entries.front()->client;
    });
    for (const QueuedPrefill* entry : entries) {
      const std::size_t turn = one_client ? 0 : turns_.at(entry->id);
      places[{.priority = priority, .turn = turn}].push_back(entry);
    }
  }
  return places;
}

std::vector<policy::SequenceId> PrefillQueue::pass(const PrefillState& state,
                                                   const std::vector<QueuedPrefill>& waiting) {
  std::map<Place, std::vector<QueuedRequest>> by_place;
  std::set<policy::SequenceId> still_late;
  for (const auto& [place, entries] : places(waiting)) {
    for (const QueuedPrefill* entry : entries) {
      const bool late = late_.contains(entry->id);
      by_place[place].push_back({.id = queued_as(entry->id),
                                 .model = entry->model,
                                 .arrived = entry->arrived,
                                 .deadline = entry->due,
                                 .prefill = entry->prefill,
                                 .kv_pages = entry->kv_pages,
                                 .late = late});
      if (late) {
        still_late.insert(entry->id);
      }
    }
  }
  late_ = std::move(still_late);
  std::erase_if(credits_, [&](const auto& entry) { return !by_place.contains(entry.first); });

  Rest rest{.state = state};
  std::vector<policy::SequenceId> admit;
  for (auto& [place, requests] : by_place) {
    std::erase_if(requests, [&](const QueuedRequest& r) { return rest.blocked.contains(r.model); });
    pass_one(place, std::move(requests), rest, admit);
  }
  return admit;
}

void PrefillQueue::pass_one(Place place,
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
                                                     .late_credit = credits_[place],
                                                     .requests = requests},
                                                    options);
  Duration longest_late{};
  for (const RequestId id : plan.late) {
    longest_late = std::max(longest_late, by_id.at(id)->prefill);
  }
  Duration& credit = credits_[place] = plan.late_credit;
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
