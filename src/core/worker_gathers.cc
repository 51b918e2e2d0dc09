#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "core/worker_core_impl.h"

/// KV that moves from the stages of a pipeline to the whole model on the leader's device
/// (docs/contracts/pipe.md). KV is a hint: whatever goes wrong, a request goes on from its tokens.
namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// What has come of a request is held for so long, until it is here again.
constexpr Duration kHeld = 5s;

std::int64_t full_blocks(const Sequence& sequence, std::int64_t block_tokens) {
  return sequence.computed / block_tokens * block_tokens;
}

}  // namespace

void WorkerCore::Impl::on(const Gather& gather) {
  const auto stages = models_.find(gather.model);
  const auto whole = models_.find(gather.into);
  const bool both_open = stages != models_.end() && stages->second.stage == Stage::kOpen &&
                         whole != models_.end() && whole->second.stage == Stage::kOpen;
  if (!both_open || !stages->second.followers || options_.prefix_cache == 0 ||
      options_.fixed_parts > 0) {
    return;  // Requests end in the stages.
  }
  const auto [at, fresh] = gatherings_.try_emplace(gather.model, Gathering{.into = gather.into});
  if (!fresh && at->second.into != gather.into) {
    stop(at->second);
    at->second = {.into = gather.into};
  }
}

/// Whether something was asked for that is answered before a step is planned.
bool WorkerCore::Impl::tend_gathers() {
  if (tell_moved()) {
    return true;
  }
  for (auto& [stages, gathering] : gatherings_) {
    if (tend(stages, gathering)) {
      return true;
    }
  }
  return false;
}

bool WorkerCore::Impl::tend(ModelId stages, Gathering& gathering) {
  const Resident& whole = models_.at(gathering.into);
  if (whole.stage != Stage::kOpen || !whole.complete() || whole.draining) {
    stop(gathering);
    return false;
  }
  if (gathering.request) {
    for (auto part = gathering.parts.begin(); part != gathering.parts.end();) {
      const Sequence* sequence = sequences_.find(part->first);
      if (sequence != nullptr && sequence->computed < part->second.said.asked) {
        stop(gathering);  // It gave its pages up, and begins anew.
        return true;
      }
      if (sequence == nullptr) {
        act(EndGather{.sequence = part->first});
      }
      part = sequence == nullptr ? gathering.parts.erase(part) : std::next(part);
    }
    if (gathering.parts.empty()) {
      stop(gathering);
      return true;
    }
  }
  if (!gathering.request) {
    choose_request(stages, gathering);
  }
  if (!gathering.request || ask_for_kv(gathering)) {
    return gathering.request.has_value();
  }
  hold_or_give_up(gathering);
  return false;
}

/// The one that has waited longest, of those that the whole model has pages for. Who has computed
/// nothing has nothing to lose, and goes at once.
void WorkerCore::Impl::choose_request(ModelId stages, Gathering& gathering) {
  std::set<std::tuple<Instant, RequestId>> by_age;
  for (const RequestId request : sequences_.requests_of(stages)) {
    const std::vector<SequenceId> ids = sequences_.of_request(request);
    const bool begun = std::ranges::any_of(ids, [this](SequenceId id) {
      const Sequence& sequence = *sequences_.find(id);
      return sequence.computed > 0 || sequence.in_pipe;
    });
    if (!begun) {
      give_back(request, false);
    } else if (!gathering.stay.contains(request)) {
      by_age.emplace(sequences_.find(ids.front())->arrived, request);
    }
  }
  for (const auto& [arrived, request] : by_age) {
    if (fits(gathering, request)) {
      gathering.request = request;
      gathering.held = false;
      for (const SequenceId id : sequences_.of_request(request)) {
        gathering.parts[id];
      }
      return;
    }
  }
}

bool WorkerCore::Impl::fits(const Gathering& gathering, RequestId request) const {
  std::vector<std::int64_t> lengths;
  for (const SequenceId id : sequences_.of_request(request)) {
    const Sequence& sequence = *sequences_.find(id);
    lengths.push_back(sequence.tokens + std::min(policy::kExpectedTokens, sequence.remaining));
  }
  return policy::kv_pages(models_.at(gathering.into).footprint.kv, lengths) <=
         ledger_.usage(pool_).free + cached_pages_;
}

/// Full blocks are final: they are asked for while the sequence goes on, as many at once as keep
/// nobody waiting. One after the other, as each answer counts pages anew.
bool WorkerCore::Impl::ask_for_kv(Gathering& gathering) {
  for (auto& [id, part] : gathering.parts) {
    const std::int64_t block = part.said.block_tokens;
    const std::int64_t most = (part.said.there + gathering.pace.tokens()) / block * block;
    const std::int64_t goal = std::min(full_blocks(*sequences_.find(id), block), most);
    if (goal > part.said.asked && !part.waits) {
      part.told = goal;
      part.waits = true;
      gathering.pace.asked(id, goal, now_);
      act(GatherKv{.sequence = id, .into = gathering.into, .tokens = goal});
      return true;
    }
  }
  return false;
}

void WorkerCore::Impl::on(const KvGathered& gathered) {
  on(gathered.counted);
  for (auto& [stages, gathering] : gatherings_) {
    const auto found = gathering.parts.find(gathered.sequence);
    if (found == gathering.parts.end()) {
      continue;
    }
    if (gathered.failed) {
      gathering.stay.insert(*gathering.request);
      stop(gathering);
      return;
    }
    gathering.pace.came(gathered.sequence, gathered.there, gathered.block_tokens, now_);
    GatheredPart& part = found->second;
    part.waits = gathered.there == part.said.there && gathered.asked < part.told;
    part.said = gathered;
    return;
  }
}

/// Once all blocks are there that were full, no more tokens are computed; and when those that were
/// away have come back, and what has become full by them, the request goes.
void WorkerCore::Impl::hold_or_give_up(Gathering& gathering) {
  bool all_there = true;
  bool all_here = true;
  bool some_away = false;
  std::int64_t computed = 0;
  std::vector<SequenceId> ids;
  for (const auto& [id, part] : gathering.parts) {
    const Sequence& sequence = *sequences_.find(id);
    all_there = all_there && part.said.usable >= full_blocks(sequence, part.said.block_tokens);
    all_here = all_here && !sequence.in_pipe;
    some_away = some_away || part.said.there < part.said.asked;
    computed += sequence.computed;
    ids.push_back(id);
  }
  if (!all_there) {
    // Where a window has lost something, more tokens have to come before there is a prefix again.
    gathering.held = gathering.held && (some_away || !all_here);
    return;
  }
  gathering.held = true;
  if (!all_here) {
    return;
  }
  const RequestId request = *gathering.request;
  if (const auto before = moved_.find(request); before != moved_.end()) {
    let_go(before->second);  // It had gone before, and came back to the stages.
  }
  moved_[request] = {
      .into = gathering.into, .held = std::move(ids), .until = now_ + kHeld, .computed = computed};
  gathering.request.reset();
  gathering.parts.clear();
  gathering.pace.forget();
  give_back(request, false);
}

/// What has come of its request so far is a cached prefix.
void WorkerCore::Impl::stop(Gathering& gathering) {
  for (const auto& [id, part] : gathering.parts) {
    act(EndGather{.sequence = id});
  }
  gathering.parts.clear();
  gathering.pace.forget();
  gathering.held = false;
  if (std::exchange(gathering.request, std::nullopt)) {
    settle_leases(gathering.into);
  }
}

/// Pages lack: what is held for nobody yet goes first. Whether there was any.
bool WorkerCore::Impl::drop_gathers() {
  bool any = false;
  for (auto& [stages, gathering] : gatherings_) {
    if (gathering.request) {
      gathering.stay.insert(*gathering.request);
      stop(gathering);
      any = true;
    }
  }
  for (auto& [request, moved] : moved_) {
    any = any || !moved.held.empty();
    let_go(moved);
  }
  return any;
}

/// The model goes: before that nothing comes to it any more, or from it.
void WorkerCore::Impl::end_gathers(ModelId model) {
  for (auto& [stages, gathering] : gatherings_) {
    if (stages == model || gathering.into == model) {
      stop(gathering);
    }
  }
  std::erase_if(gatherings_, [&](const auto& entry) {
    return entry.first == model || entry.second.into == model;
  });
  for (auto& [request, moved] : moved_) {
    if (moved.into == model) {
      let_go(moved);
    }
  }
  std::erase_if(moved_, [&](const auto& entry) { return entry.second.into == model; });
}

void WorkerCore::Impl::let_go(MovedRequest& moved) {
  if (moved.held.empty()) {
    return;
  }
  for (const SequenceId id : std::exchange(moved.held, {})) {
    act(EndGather{.sequence = id});
  }
  settle_leases(moved.into);
}

/// A request that was given up is here again: from now on its own need counts, and what it will
/// find is as good as free. Older prefixes go before that.
void WorkerCore::Impl::note_arrival(const Submit& submit) {
  const auto found = moved_.find(submit.request);
  if (found != moved_.end() && found->second.into == submit.model) {
    let_go(found->second);
    found->second.until = now_ + kHeld;
  }
}

void WorkerCore::Impl::note_found(const PrefixTaken& prefix) {
  const Sequence* sequence = sequences_.find(prefix.sequence);
  if (sequence == nullptr) {
    return;
  }
  const auto found = moved_.find(sequence->request);
  if (found != moved_.end() && found->second.into == sequence->model) {
    found->second.found += prefix.computed;
  }
}

/// Of requests that go on in the whole model. Whether KV was let go, of those that did not come.
bool WorkerCore::Impl::tell_moved() {
  bool any = false;
  for (auto at = moved_.begin(); at != moved_.end();) {
    MovedRequest& moved = at->second;
    const std::vector<SequenceId> ids = sequences_.of_request(at->first);
    const bool goes_on = !ids.empty() && std::ranges::all_of(ids, [&](SequenceId id) {
      const Sequence& sequence = *sequences_.find(id);
      return sequence.model == moved.into && sequence.computed > 0;
    });
    if (goes_on) {
      const std::int64_t again = std::max<std::int64_t>(moved.computed - moved.found, 0);
      say(KvMoved{.model = moved.into,
                  .tokens = static_cast<std::uint64_t>(moved.found),
                  .computed = static_cast<std::uint64_t>(again)});
    }
    if (goes_on || now_ >= moved.until) {
      any = any || !moved.held.empty();
      let_go(moved);
    }
    at = goes_on || now_ >= moved.until ? moved_.erase(at) : std::next(at);
  }
  return any;
}

/// Whether it is in no plan, as its request is about to go.
bool WorkerCore::Impl::is_held(const Sequence& sequence) const {
  const auto found = gatherings_.find(sequence.model);
  return found != gatherings_.end() && found->second.held &&
         found->second.parts.contains(sequence.id);
}

/// Whether there is KV of the model that is not cached.
bool WorkerCore::Impl::has_kv(ModelId model) const {
  const auto comes = [&](const auto& entry) {
    return entry.second.into == model && !entry.second.parts.empty();
  };
  const auto held = [&](const auto& entry) {
    return entry.second.into == model && !entry.second.held.empty();
  };
  return sequences_.any_computed(model) || std::ranges::any_of(gatherings_, comes) ||
         std::ranges::any_of(moved_, held);
}

}  // namespace heddle::core
