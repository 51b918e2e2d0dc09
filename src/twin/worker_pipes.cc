#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/div_up.h"
#include "twin/worker.h"

/// What a worker's engine does with models that are stages of a pipeline (engine/pipe.h), and with
/// KV that goes from them to the whole model (engine/gather.h).
namespace heddle::twin {

namespace {

/// Pieces of one sequence's KV that are away at most, as engine::kGatherPieces.
constexpr std::size_t kPiecesAway = 4;

/// Names what has come of a sequence to the whole model.
core::SequenceId shadow_of(core::SequenceId id) {
  return core::SequenceId(id.value() | (std::uint64_t{1} << 63U));
}

}  // namespace

void Worker::join(PipeNo pipe, ModelId model, std::size_t stage) {
  if (!alive_) {
    return;
  }
  told_of_.insert(pipe);
  queue(JoinPipe{.pipe = pipe, .model = model, .stage = stage});
  for (Input& input : std::exchange(early_[pipe], {})) {
    queue(std::move(input));
  }
}

/// Sockets keep what comes before they are looked at.
void Worker::hear_of_pipe(PipeNo pipe, Input input) {
  if (!alive_) {
    return;
  }
  if (told_of_.contains(pipe)) {
    queue(std::move(input));
  } else {
    early_[pipe].push_back(std::move(input));
  }
}

void Worker::hear_stage(PipeNo pipe, const StageMessage& message) {
  hear_of_pipe(pipe, FromStage{.pipe = pipe, .message = message});
}

void Worker::lose_pipe(PipeNo pipe) {
  hear_of_pipe(pipe, PipeGone{.pipe = pipe});
}

void Worker::take_in(const JoinPipe& join) {
  const auto found = models_.find(join.model);
  if (found == models_.end() || found->second.closing || !found->second.opened) {
    around_.pipes.leave(join.pipe, *this);
    return;  // It was closed before the pipeline was formed.
  }
  piped_ = Piped{.pipe = join.pipe, .model = join.model, .stage = join.stage};
  tell(core::PipeJoined{.model = join.model,
                        .stage = static_cast<std::int64_t>(join.stage),
                        .shared = around_.models.at(join.model).stage.shares});
}

/// A leader whose followers have gone ends as well: its host sees to that.
void Worker::take_in(const PipeGone& gone) {
  if (piped_ && piped_->pipe == gone.pipe && piped_->stage > 0) {
    const ModelId model = piped_->model;
    piped_.reset();
    tell(core::PipeLeft{.model = model});
  }
}

void Worker::take_in(const FromStage& said) {
  if (piped_ && piped_->pipe == said.pipe) {
    std::visit([this](const auto& message) { hear(message); }, said.message);
  }
}

// ---- Pages of followers ----

void Worker::perform(const core::ReservePipe& command) {
  give_back_reserve();
  if (command.pages == 0) {
    return;
  }
  std::vector<PageId> pages;
  while (std::ssize(pages) < command.pages) {
    pages.push_back(kv_.take());
  }
  reserve_ = std::make_unique<Reserve>(
      command.model, command.pages, around_.page_count, pages, options_.prefix_cache > 0);
  if (around_.contents != nullptr) {
    reserve_->kv.watch(*around_.contents, {.device = device(), .epoch = epoch()});
  }
  reserve_->kv.add_model(command.model, command.kv);
  if (piped_ && piped_->model == command.model) {
    const auto stage = static_cast<std::int64_t>(piped_->stage);
    around_.pipes.send(
        piped_->pipe,
        piped_->stage,
        StageShare{.stage = stage, .share = {.kv = command.kv, .pages = command.pages}});
  }
}

/// With nothing in them.
void Worker::give_back_reserve() {
  if (!reserve_) {
    return;
  }
  for (const SequenceId id : reserve_->kv.sequences(reserve_->model)) {
    reserve_->kv.remove(reserve_->model, id);
  }
  reserve_->kv.trim(0);
  reserve_->kv.drop_model(reserve_->model);
  for (std::int64_t i = 0; i < reserve_->pages; ++i) {
    kv_.put(reserve_->kv.take());
  }
  reserve_.reset();
  if (piped_) {
    piped_->followed.clear();
  }
}

void Worker::hear(const StageShare& share) {
  if (piped_->stage > 0) {
    around_.pipes.send(piped_->pipe, piped_->stage, share);
    return;
  }
  piped_->followers[share.stage] = share.share;
  if (std::ssize(piped_->followers) + 1 < around_.models.at(piped_->model).stage.stages) {
    return;
  }
  core::PipeReady ready{.model = piped_->model};
  for (const auto& [stage, one] : piped_->followers) {
    ready.followers.push_back(one);
  }
  tell(ready);
}

// ---- Batches ----

/// The slice goes on to the next stage.
void Worker::add_slice(const policy::StepSlice& slice, StageBatch& batch, core::StepDone& done) {
  Sequence& sequence = sequences_.at(slice.sequence);
  HEDDLE_CHECK(!sequence.in_pipe);
  sequence.in_pipe = sequence.followed = true;
  batch.slices.push_back({.sequence = slice.sequence,
                          .life = sequence.life,
                          .position = sequence.computed,
                          .tokens = slice.tokens,
                          .samples = samples(slice),
                          .marks = sequence.marks});
  done.in_pipe.push_back(slice.sequence);
}

void Worker::send_batch(StageBatch batch) {
  batch.number = ++piped_->batches;
  batch.dropped = std::exchange(piped_->dropped, {});
  piped_->away[batch.number] = {.slices = batch.slices};
  around_.pipes.send(piped_->pipe, piped_->stage, std::move(batch));
}

/// The sequence goes, or begins anew: what is away of it is for nobody.
void Worker::forget_in_pipe(SequenceId id, Sequence& sequence) {
  sequence.in_pipe = false;
  sequence.life = ++lives_;
  if (std::exchange(sequence.followed, false) && leads(sequence.model)) {
    piped_->dropped.push_back(id);
  }
}

void Worker::hear(const StageBatch& batch) {
  if (piped_->stage == 0) {
    finish(batch);
  } else {
    run_stage(batch);
  }
}

void Worker::finish(const StageBatch& batch) {
  const auto away = piped_->away.extract(batch.number);
  HEDDLE_CHECK(!away.empty());
  core::PipeReturned returned{.model = piped_->model};
  for (const StageSlice& slice : away.mapped().slices) {
    const auto found = sequences_.find(slice.sequence);
    if (found == sequences_.end() || found->second.life != slice.life) {
      continue;
    }
    found->second.in_pipe = false;
    if (std::ranges::count(batch.refused, slice.sequence) > 0) {
      kv_.shrink(piped_->model, slice.sequence);
      returned.refused.push_back(slice.sequence);
    } else {
      returned.slices.push_back(run_slice(slice.sequence, slice.tokens));
    }
  }
  static_cast<void>(kv_.changed());  // This tells.
  returned.counted = kv_.counted();
  idle_said_ = false;
  tell(returned);
}

void Worker::drop_followed(SequenceId id) {
  if (piped_->followed.erase(id) > 0) {
    reserve_->kv.remove(piped_->model, id);
  }
}

/// Whether it has the tokens before the slice, and pages for those of it.
bool Worker::follow(const StageSlice& slice) {
  const ModelId model = piped_->model;
  const auto [at, fresh] = piped_->followed.try_emplace(slice.sequence, 0);
  if (fresh && slice.position > 0) {
    at->second = reserve_->kv.find_prefix(model, slice.sequence, slice.position, slice.marks);
  }
  HEDDLE_CHECK(fresh || at->second == slice.position);
  if (at->second == slice.position &&
      reserve_->kv.grow(model, slice.sequence, slice.position + slice.tokens)) {
    return true;
  }
  drop_followed(slice.sequence);
  return false;
}

/// Runs a batch through the layers here, which nothing but the end of this worker stops.
void Worker::run_stage(StageBatch batch) {
  HEDDLE_CHECK(reserve_ && batch.number == ++piped_->batches);
  for (const auto& gone : {batch.dropped, batch.refused}) {
    for (const SequenceId id : gone) {
      drop_followed(id);
    }
  }
  const Model& model = models_.at(piped_->model);
  HEDDLE_CHECK(model.ready >= model.open.image_bytes);
  if (around_.contents != nullptr) {
    around_.contents->use_image(piped_->model, model.window, model.open.image_bytes);
  }
  const StepTimes& times = around_.models.at(piped_->model).step;
  double seconds = 0;
  std::vector<StageSlice> taken;
  for (StageSlice& slice : batch.slices) {
    if (!follow(slice)) {
      batch.refused.push_back(slice.sequence);
      continue;
    }
    const std::int64_t computed = slice.position + slice.tokens;
    reserve_->kv.compute(piped_->model, slice.sequence, computed, slice.marks);
    piped_->followed.at(slice.sequence) = computed;
    const auto tokens = static_cast<double>(slice.tokens);
    const auto past = static_cast<double>(slice.position);
    seconds += tokens * times.token;
    seconds += slice.tokens == 1 ? past * times.context
                                 : (tokens * past + tokens * tokens / 2) * times.pair;
    taken.push_back(std::move(slice));
  }
  seconds += taken.empty() ? 0 : times.fixed;
  batch.slices = std::move(taken);
  runs_stage_ = true;
  const Duration computes = from_seconds(seconds) + around_.faults.some(around_.faults.late().step);
  at(around_.agenda.now() + computes,
     [this, pipe = piped_->pipe, stage = piped_->stage, batch = std::move(batch)] {
       runs_stage_ = false;
       ++steps_;
       around_.pipes.send(pipe, stage, batch);
       work();
     });
}

// ---- KV on its way to the whole model ----

void Worker::perform(const core::GatherKv& command) {
  HEDDLE_CHECK(leads(sequences_.at(command.sequence).model));
  const Sequence& sequence = sequences_.at(command.sequence);
  const auto [at, fresh] = gathers_.try_emplace(command.sequence, Gathered{.into = command.into});
  Gathered& gathered = at->second;
  gathered.marks = sequence.marks;
  const SequenceId shadow = shadow_of(command.sequence);
  if (fresh) {
    gathered.asked = gathered.there =
        kv_.find_prefix(command.into, shadow, sequence.computed, gathered.marks);
  }
  const std::int64_t most = around_.models.at(command.into).piece_tokens;
  const std::int64_t goal = std::min(command.tokens, sequence.computed);
  const std::int64_t part = div_up(goal - gathered.asked, std::int64_t{kPiecesAway});
  while (!gathered.failed && gathered.asked < goal && gathered.pieces.size() < kPiecesAway) {
    const std::int64_t end = std::min(gathered.asked + std::min(part, most), goal);
    gathered.failed = !kv_.grow(command.into, shadow, end);
    if (!gathered.failed) {
      const StagePiece piece{.number = ++pieces_asked_,
                             .sequence = command.sequence,
                             .begin = gathered.asked,
                             .end = end};
      gathered.asked = end;
      gathered.pieces.push_back(piece);
      around_.pipes.send(piped_->pipe, piped_->stage, piece);
    }
  }
  tell_gathered(command.sequence);
}

void Worker::hear(const StagePiece& piece) {
  if (piped_->stage > 0) {
    StagePiece on = piece;
    const auto found = piped_->followed.find(piece.sequence);
    on.refused = piece.refused || found == piped_->followed.end() || piece.end > found->second;
    around_.pipes.send(piped_->pipe, piped_->stage, on);
    return;
  }
  const auto found = gathers_.find(piece.sequence);
  if (found == gathers_.end() || found->second.pieces.empty() ||
      found->second.pieces.front().number != piece.number) {
    return;  // It is late, and for nobody.
  }
  Gathered& gathered = found->second;
  gathered.pieces.pop_front();
  gathered.failed = gathered.failed || piece.refused;
  if (!gathered.failed) {
    gathered.there = piece.end;
    kv_.compute(gathered.into, shadow_of(piece.sequence), piece.end, gathered.marks);
  }
  tell_gathered(piece.sequence);
  idle_said_ = false;
  const auto answers = std::exchange(answers_, {});
  for (const core::WorkerEvent& answer : answers) {
    tell(answer);
  }
}

void Worker::tell_gathered(SequenceId id) {
  const Gathered& gathered = gathers_.at(id);
  std::int64_t block = 1;
  for (const policy::KvGroup& group : around_.models.at(gathered.into).model.footprint.kv) {
    block = std::max(block, group.tokens_per_block);
  }
  static_cast<void>(kv_.changed());  // This tells.
  answers_.emplace_back(core::KvGathered{.sequence = id,
                                         .asked = gathered.asked,
                                         .there = gathered.there,
                                         .usable = gathered.there / block * block,
                                         .block_tokens = block,
                                         .failed = gathered.failed,
                                         .counted = kv_.counted()});
}

void Worker::perform(const core::EndGather& command) {
  const auto found = gathers_.find(command.sequence);
  if (found != gathers_.end()) {
    kv_.remove(found->second.into, shadow_of(command.sequence));
    gathers_.erase(found);
  }
}

}  // namespace heddle::twin
