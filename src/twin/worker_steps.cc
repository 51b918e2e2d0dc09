#include <algorithm>
#include <utility>

#include "base/check.h"
#include "twin/worker.h"

/// What a worker's steps take, and what they do.
namespace heddle::twin {

/// Whether a step that waits for weights gives that up, to be run again later: there is something
/// else to do than to know of more of them, or of more requests for the same model. Only waits for
/// a network are long enough to matter.
bool Worker::interrupts(const Input& input) const {
  if (!step_ || !step_->waits) {
    return false;
  }
  std::set<ModelId> awaited;
  for (const policy::ModelBatch& batch : step_->plan.batches) {
    if (!around_.models.at(batch.model).model.fetched || models_.at(batch.model).in_lockstep) {
      return false;
    }
    awaited.insert(batch.model);
  }
  const auto* event = std::get_if<core::WorkerEvent>(&input);
  const auto* message = event ? std::get_if<core::WorkerMessage>(event) : nullptr;
  const auto* submit = message ? std::get_if<core::Submit>(message) : nullptr;
  const auto* progress = message ? std::get_if<core::ImageProgress>(message) : nullptr;
  if (progress != nullptr) {
    const auto found = models_.find(progress->model);
    return found != models_.end() && !awaited.contains(progress->model) &&
           progress->bytes >= found->second.open.image_bytes;
  }
  return (submit == nullptr || !awaited.contains(submit->model)) &&
         (event == nullptr || !std::holds_alternative<core::CopyProgress>(*event));
}

/// Whether it ends in a token: all that is known of the sequence is computed then.
bool Worker::samples(const policy::StepSlice& slice) const {
  const Sequence& sequence = sequences_.at(slice.sequence);
  return sequence.computed + slice.tokens == sequence.known;
}

/// The head is read only for tokens.
std::uint64_t Worker::bytes_used(const policy::ModelBatch& batch) const {
  const bool head = std::any_of(batch.slices.begin(),
                                batch.slices.end(),
                                [this](const policy::StepSlice& slice) { return samples(slice); });
  return head ? models_.at(batch.model).open.image_bytes
              : around_.models.at(batch.model).body_bytes;
}

bool Worker::has_weights(const policy::ModelBatch& batch) const {
  return models_.at(batch.model).ready >= bytes_used(batch);
}

/// What the engine computes, were all weights there.
Duration Worker::compute_time(const policy::StepPlan& plan) const {
  double seconds = 0;
  for (const policy::ModelBatch& batch : plan.batches) {
    const StepTimes& times = around_.models.at(batch.model).step;
    seconds += times.fixed;
    for (const policy::StepSlice& slice : batch.slices) {
      const Sequence& sequence = sequences_.at(slice.sequence);
      const auto tokens = static_cast<double>(slice.tokens);
      const auto past = static_cast<double>(sequence.computed);
      seconds += tokens * times.token;
      seconds += samples(slice) ? times.row : 0;
      seconds += slice.tokens == 1 ? past * times.context
                                   : (tokens * past + tokens * tokens / 2) * times.pair;
    }
  }
  return from_seconds(seconds);
}

Duration Worker::paced_time(const policy::StepPlan& plan) {
  Duration paced = device_.pace_step;
  for (const policy::ModelBatch& batch : plan.batches) {
    paced = std::max(paced, models_.at(batch.model).pace_step);
  }
  for (const policy::ModelBatch& batch : plan.batches) {
    const Duration token = std::max(device_.pace_token, models_.at(batch.model).pace_token);
    for (const policy::StepSlice& slice : batch.slices) {
      paced += token * slice.tokens;
    }
  }
  return paced + context_time(plan);
}

/// For attention: at home and where guests are it goes on at once, and the longer time counts. The
/// host's own step takes longer by its part.
Duration Worker::context_time(const policy::StepPlan& plan) {
  Duration home{};
  Duration longest{};
  for (const policy::ModelBatch& batch : plan.batches) {
    std::int64_t guests = 0;
    for (const policy::StepSlice& slice : batch.slices) {
      const std::int64_t away =
          ranks_.contains(batch.model) ? 0 : kv_.away(batch.model, slice.sequence);
      const std::int64_t past = sequences_.at(slice.sequence).computed;
      home += device_.pace_context * (past - away + slice.tokens);
      guests += away;
    }
    const auto host = guest_hosts_.find(batch.model);
    const std::shared_ptr<Worker> other =
        host == guest_hosts_.end() ? nullptr : host->second.lock();
    if (guests > 0 && other != nullptr && other->alive()) {
      const Duration there = other->device_.pace_context * guests;
      other->serve_guests(there);
      longest = std::max(longest, there);
    } else {
      home += device_.pace_context * guests;
    }
  }
  if (longest > Duration{} && !policy::reads_prompts(plan) && device_.pace_context > Duration{}) {
    step_->guests = {.home = home,
                     .positions = home / device_.pace_context,
                     .waited = std::max(longest - home, Duration{})};
  }
  return std::max(home, longest);
}

void Worker::perform(const core::RunStep& command) {
  HEDDLE_CHECK(!step_ && !command.plan.batches.empty());
  Step& step = step_.emplace(
      Step{.plan = command.plan,
           .began = around_.agenda.now(),
           .compute = compute_time(command.plan) + around_.faults.some(around_.faults.late().step),
           .waits = true});
  for (const policy::ModelBatch& batch : command.plan.batches) {
    for (const policy::StepSlice& slice : batch.slices) {
      const Sequence& sequence = sequences_.at(slice.sequence);
      if (!kv_of(batch.model).grow(batch.model, slice.sequence, sequence.computed + slice.tokens)) {
        step.starved.insert(slice.sequence);
      }
    }
  }
  static_cast<void>(kv_changed());  // StepDone will tell.
  check_waiting_step();
}

/// A step goes on layer by layer as the weights come; once the last have come, the last layer is
/// left to do.
void Worker::check_waiting_step() {
  if (!step_ || !step_->waits) {
    return;
  }
  std::int64_t layers = 1;
  for (const policy::ModelBatch& batch : step_->plan.batches) {
    const Model& model = models_.at(batch.model);
    HEDDLE_CHECK(model.opened && !model.closing);
    if (!model.abandoned && !step_->gives_up && !has_weights(batch)) {
      return;
    }
    layers = std::max(layers, around_.models.at(batch.model).layers);
  }
  step_->waits = false;
  const Instant computed =
      step_->gives_up
          ? around_.agenda.now()
          : std::max(step_->began + step_->compute, around_.agenda.now() + step_->compute / layers);
  const Rank* const leader = led_in(step_->plan);
  const Instant ends = std::max(computed, step_->began + paced_time(step_->plan)) +
                       (leader != nullptr ? followers_busy(*leader) : Duration{});
  step_->hosted_before = step_->guest_time = guest_time_;
  busy_until_ = ends + device_.step_overhead;
  if (leader != nullptr) {
    hold_followers(*leader);
  }
  at(busy_until_, [this] { end_step_or_go_on(); });
}

/// What the device did for guests meanwhile comes on top, where it is paced.
void Worker::end_step_or_go_on() {
  const Duration more = guest_time_ - std::exchange(step_->guest_time, guest_time_);
  if (more == Duration{}) {
    end_step();
  } else {
    at(around_.agenda.now() + more, [this] { end_step_or_go_on(); });
  }
}

core::SliceDone Worker::run_slice(SequenceId id, std::int64_t tokens) {
  Sequence& sequence = sequences_.at(id);
  sequence.computed += tokens;
  HEDDLE_CHECK(sequence.computed <= sequence.known && !sequence.compiling);
  kv_of(sequence.model).compute(sequence.model, id, sequence.computed, sequence.marks);
  core::SliceDone result{.sequence = id, .computed = sequence.computed};
  if (sequence.computed == sequence.known) {
    result.position = sequence.generated;
    result.token = right_token(sequence.prompt, sequence.choice, sequence.generated);
    if (!sequence.marks.empty()) {
      sequence.marks.append(*result.token);
    }
    ++sequence.known;
    ++sequence.generated;
    if (sequence.generated == sequence.most) {
      result.finish = spec::FinishReason::kLength;
    }
  }
  return result;
}

void Worker::end_step() {
  ++steps_;
  const Step step = *std::exchange(step_, std::nullopt);
  core::StepDone done{.took = around_.agenda.now() - step.began,
                      .guests = step.guests,
                      .hosting = step.guest_time - step.hosted_before};
  for (const policy::ModelBatch& batch : step.plan.batches) {
    const bool ready = has_weights(batch);
    StageBatch sent;
    if (ready && around_.contents != nullptr) {
      around_.contents->use_image(batch.model, models_.at(batch.model).window, bytes_used(batch));
    }
    for (const policy::StepSlice& slice : batch.slices) {
      if (step.starved.contains(slice.sequence)) {
        done.starved.push_back(slice.sequence);
      } else if (!ready) {
        kv_of(batch.model).shrink(batch.model, slice.sequence);
        if (models_.at(batch.model).abandoned) {
          done.unready.push_back(slice.sequence);
        }
      } else if (leads(batch.model)) {
        add_slice(slice, sent, done);
      } else {
        done.slices.push_back(run_slice(slice.sequence, slice.tokens));
      }
    }
    if (!sent.slices.empty()) {
      send_batch(std::move(sent));
    }
  }
  static_cast<void>(kv_changed());  // This tells.
  done.counted = counted();
  tell(done);
  idle_said_ = false;
  if (const Rank* const leader = led_in(step.plan)) {
    release_followers(*leader);
  }
  work();
}

}  // namespace heddle::twin
