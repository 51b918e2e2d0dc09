#include <algorithm>
#include <string>
#include <utility>

#include "core/worker_core_impl.h"

/// Models that are stages of a pipeline (docs/contracts/pipe.md).
namespace heddle::core {
namespace {

/// Sequences that make a part of a page and the window of a layer count as little as they do.
constexpr std::int64_t kManySequences = 16;

}  // namespace

/// A follower that has the device to itself reserves all that is free; else half, and at least what
/// it was loaded for. A reservation that it has already stays.
void WorkerCore::Impl::on(const PipeJoined& joined) {
  const auto found = models_.find(joined.model);
  if (found == models_.end() || found->second.stage != Stage::kOpen) {
    return;  // It was closed meanwhile.
  }
  Resident& model = found->second;
  if (joined.stage == 0) {
    model.followers.emplace();
    return;
  }
  leave_pipe(joined.model, model);
  trim_cached(0, ledger::DropReason::kLoad);
  const std::int64_t free = ledger_.usage(pool_).free;
  set_apart(
      joined.model,
      model,
      joined.shared ? std::min(free, std::max(free / 2, model.footprint.min_kv_pages)) : free);
  act(ReservePipe{.model = joined.model, .pages = model.apart_pages, .kv = model.footprint.kv});
}

void WorkerCore::Impl::on(const PipeLeft& left) {
  const auto found = models_.find(left.model);
  if (found != models_.end()) {
    leave_pipe(left.model, found->second);
  }
}

/// Gives up what a follower has reserved, or a rank that goes: its pages leave with the model.
void WorkerCore::Impl::leave_pipe(ModelId id, Resident& model) {
  if (!model.apart) {
    return;
  }
  const bool piped = !model.share;
  set_apart(id, model, 0);
  model.share.reset();
  if (piped) {
    act(ReservePipe{.model = id, .pages = 0});
  }
  crowded_ = stalled_ = false;
}

void WorkerCore::Impl::on(const PipeReady& ready) {
  const auto found = models_.find(ready.model);
  if (found == models_.end() || !found->second.followers) {
    return;
  }
  found->second.followers = ready.followers;
}

void WorkerCore::Impl::on(const PipeReturned& returned) {
  take_in(returned.slices, returned.unready, returned.counted);
  for (const SequenceId id : returned.refused) {
    refuse_in_pipe(id);
  }
  keep_within_limits();
}

/// First it is computed again without a prefix, which some follower may have dropped. Where that is
/// refused too, pages lack there: it waits until another has ended, or is given up if it is alone.
void WorkerCore::Impl::refuse_in_pipe(SequenceId id) {
  const Sequence* sequence = sequences_.find(id);
  if (sequence == nullptr) {
    return;  // Another choice of its request was given up before.
  }
  const ModelId model = sequence->model;
  if (!sequence->packed) {
    act(PreemptSequence{.sequence = id});
    sequences_.pack(id);
    settle_leases(model);
    return;
  }
  if (sequences_.count_admitted(model) > 1) {
    preempt(id);
    crowded_ = true;
    return;
  }
  fail_request(sequence->request,
               {Code::kResourceExhausted,
                std::to_string(sequence->tokens) +
                    " tokens do not fit in the pages of KV that a stage of its pipeline has"});
}

/// Of the leader's KV, as much as the follower that has least has pages for, at the rate at which
/// many sequences take pages on both.
std::optional<std::int64_t> WorkerCore::Impl::pages_in_pipe(const Resident& model) {
  if (!model.followers || model.followers->empty()) {
    return std::nullopt;
  }
  const std::vector<std::int64_t> lengths(kManySequences, policy::kUsefulTokens);
  const std::int64_t own = policy::kv_pages(model.footprint.kv, lengths);
  std::int64_t least = INT64_MAX;
  for (const PipeShare& follower : *model.followers) {
    const std::int64_t there = std::max<std::int64_t>(policy::kv_pages(follower.kv, lengths), 1);
    least = std::min(least, follower.pages * own / there);
  }
  return least;
}

std::optional<Error> WorkerCore::Impl::too_long_for_pipe(const Resident& model,
                                                         std::int64_t tokens) {
  if (!model.followers) {
    return std::nullopt;
  }
  for (const PipeShare& follower : *model.followers) {
    const std::int64_t need = policy::kv_pages(follower.kv, {&tokens, 1});
    if (need > follower.pages) {
      return Error{Code::kInvalidArgument,
                   std::to_string(tokens) + " tokens need " + std::to_string(need) +
                       " pages of KV on a stage of the pipeline, which has " +
                       std::to_string(follower.pages)};
    }
  }
  return std::nullopt;
}

/// Of a pipeline's sequences a step takes those that have waited longest, as many as leave some for
/// each other stage: so that all stages have a batch to run.
void WorkerCore::Impl::take_turns(std::vector<policy::SequenceView>& views) const {
  for (const auto& [id, model] : models_) {
    if (!model.followers || model.followers->empty()) {
      continue;
    }
    std::vector<const Sequence*> own;
    for (const policy::SequenceView& view : views) {
      if (view.model == id) {
        own.push_back(sequences_.find(view.id));
      }
    }
    const std::int64_t stages = std::ssize(*model.followers) + 1;
    const std::int64_t most = (sequences_.count_admitted(id) + stages - 1) / stages;
    if (std::ssize(own) <= most) {
      continue;
    }
    std::sort(own.begin(), own.end(), [](const Sequence* a, const Sequence* b) {
      return std::pair(a->turn, a->id) < std::pair(b->turn, b->id);
    });
    const std::set<const Sequence*> next(own.begin(), own.begin() + most);
    std::erase_if(views, [&, &model_id = id](const policy::SequenceView& view) {
      return view.model == model_id && !next.contains(sequences_.find(view.id));
    });
  }
}

}  // namespace heddle::core
