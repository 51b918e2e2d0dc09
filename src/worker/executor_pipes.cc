#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/pipe.h"
#include "worker/device_executor.h"
#include "worker/pipe_wire.h"

/// What DeviceExecutor does with models that are stages of a pipeline.
namespace heddle::worker {

void DeviceExecutor::join(std::unique_ptr<Pipe> pipe, std::vector<core::WorkerEvent>& events) {
  const ModelId model = pipe->model();
  const auto found = opened_.find(model);
  if (found == opened_.end() || !found->second.registered) {
    return;  // It was closed before the pipeline was formed.
  }
  engine_->pipes().join(model);
  pipe_ = std::move(pipe);
  followers_.clear();
  events.push_back(
      core::PipeJoined{.model = model, .stage = pipe_->stage(), .shared = pipe_->shared()});
}

Result<void> DeviceExecutor::hear_stage(std::uint64_t pipe,
                                        std::string_view payload,
                                        std::vector<core::WorkerEvent>& events) {
  if (pipe_ == nullptr || pipe_->id() != pipe) {
    return {};  // It is late, and for nobody.
  }
  Result<StageMessage> message = decode_stage_message(payload);
  if (!message) {
    return message.error();
  }
  if (const auto* follower = std::get_if<rpc::PipeFollower>(&*message)) {
    hear_follower(*follower, events);
    return {};
  }
  if (auto* piece = std::get_if<engine::KvPiece>(&*message)) {
    piece->model = pipe_->model();
    return hear_piece(*piece, events);
  }
  auto& batch = std::get<engine::PipeBatch>(*message);
  batch.model = pipe_->model();
  pulse_.begin(policy::Doing::kStep);
  const Result<void> done = pipe_->leads() ? finish(batch, events) : run_stage(batch);
  pulse_.begin(policy::Doing::kWork);
  return done;
}

/// What followers have goes round to the leader, which begins when it knows of all.
void DeviceExecutor::hear_follower(const rpc::PipeFollower& follower,
                                   std::vector<core::WorkerEvent>& events) {
  if (!pipe_->leads()) {
    pipe_->send(encode_follower(follower));
    return;
  }
  followers_[follower.stage] = {.kv = follower.kv, .pages = follower.pages};
  if (std::ssize(followers_) + 1 < pipe_->stages()) {
    return;
  }
  core::PipeReady ready{.model = pipe_->model()};
  for (const auto& [stage, share] : followers_) {
    ready.followers.push_back(share);
  }
  events.push_back(std::move(ready));
}

/// KV on its way to the whole model, which is with the leader.
Result<void> DeviceExecutor::hear_piece(engine::KvPiece& piece,
                                        std::vector<core::WorkerEvent>& events) {
  engine::Gathers gathers = engine_->pipes().gathers();
  if (pipe_->leads()) {
    const Result<std::optional<engine::GatherState>> state = gathers.put(piece);
    if (!state) {
      return state.error();
    }
    if (state->has_value()) {
      tell_gathered(piece.sequence, **state, events);
    }
    return {};
  }
  const Result<void> added = gathers.add(piece);
  if (added) {
    pipe_->send(encode_piece(piece));
  }
  return added;
}

void DeviceExecutor::execute(const core::GatherKv& command,
                             std::vector<core::WorkerEvent>& events) {
  HEDDLE_CHECK(pipe_ != nullptr && pipe_->leads());
  std::vector<engine::KvPiece> pieces;
  const Result<engine::GatherState> state =
      engine_->pipes().gathers().ask(command.sequence, command.into, command.tokens, pieces);
  if (!state) {
    lost_ = state.error();
    return;
  }
  for (const engine::KvPiece& piece : pieces) {
    pipe_->send(encode_piece(piece));
  }
  tell_gathered(command.sequence, *state, events);
}

void DeviceExecutor::tell_gathered(core::SequenceId sequence,
                                   const engine::GatherState& state,
                                   std::vector<core::WorkerEvent>& events) {
  if (state.failed) {
    log::info("a request ends in the stages of its pipeline, as its KV cannot move",
              {{"sequence", sequence.value()}});
  }
  kv_changed_ = false;  // This tells.
  events.push_back(core::KvGathered{.sequence = sequence,
                                    .asked = state.asked,
                                    .there = state.there,
                                    .usable = state.usable,
                                    .block_tokens = state.block_tokens,
                                    .failed = state.failed,
                                    .counted = counted()});
}

void DeviceExecutor::execute(const core::EndGather& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  engine_->pipes().gathers().end(command.sequence);
  kv_changed_ = true;
}

Result<void> DeviceExecutor::run_stage(engine::PipeBatch& batch) {
  const Instant began = steady_now();
  if (const Result<void> done = engine_->pipes().run(batch); !done) {
    return done;
  }
  ++stats_.steps;
  stats_.busy += steady_now() - began;
  pipe_->send(encode_batch(batch));
  return {};
}

Result<void> DeviceExecutor::finish(const engine::PipeBatch& batch,
                                    std::vector<core::WorkerEvent>& events) {
  const Instant began = steady_now();
  Result<engine::StepOutcome> outcome = engine_->pipes().finish(batch);
  if (!outcome) {
    return outcome.error();
  }
  stats_.busy += steady_now() - began;
  forget_failed(*outcome);
  core::PipeReturned returned{.model = batch.model,
                              .slices = slices_of(*outcome),
                              .unready = std::move(outcome->unready),
                              .refused = std::move(outcome->refused),
                              .counted = counted()};
  events.push_back(std::move(returned));
  tell_failed(*outcome, events);
  return {};
}

void DeviceExecutor::leave_pipe(std::uint64_t pipe, std::vector<core::WorkerEvent>& events) {
  if (pipe_ == nullptr || pipe_->id() != pipe || pipe_->leads()) {
    return;  // A leader whose followers have gone ends as well: the other side sees to that.
  }
  events.push_back(core::PipeLeft{.model = pipe_->model()});
  pipe_.reset();
}

void DeviceExecutor::execute(const core::ReservePipe& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  // The core's ledger has counted them as free.
  HEDDLE_CHECK(engine_->pipes().reserve(command.model, command.pages).has_value());
  if (command.pages > 0 && pipe_ != nullptr && pipe_->model() == command.model) {
    pipe_->send(
        encode_follower({.stage = pipe_->stage(), .kv = command.kv, .pages = command.pages}));
  }
}

void DeviceExecutor::send_batches(std::vector<engine::PipeBatch>& batches, core::StepDone& done) {
  for (const engine::PipeBatch& batch : batches) {
    HEDDLE_CHECK(pipe_ != nullptr && pipe_->model() == batch.model);
    for (const engine::PipeSlice& slice : batch.slices) {
      done.in_pipe.push_back(slice.sequence);
    }
    pipe_->send(encode_batch(batch));
  }
}

}  // namespace heddle::worker
