#include "sim/planes/gpu_queues.h"

#include <algorithm>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// When the first token is due; a model without an objective can wait.
Instant due(const World& world, const LiveRequest& request) {
  const Duration ttft = world.model(request.model).slo_ttft;
  return request.arrival + (ttft > Duration{} ? ttft : Duration(1h));
}

/// Pages that a request will want on the GPU.
std::int64_t pages_of(const World& world, const LiveRequest& request, GpuId gpu) {
  return std::min(world.gpu(gpu).pages / 2,
                  world.kv_pages(request.model, request.prompt + policy::kExpectedTokens));
}

/// One step of an engine that reads `tokens` of a prompt and nothing else.
Duration reading_step(const StepModel& step, std::int64_t tokens) {
  return Duration((step.base_ps(tokens, 1) + step.fixed_ps() + step.chunk_ps({.tokens = tokens})) /
                  1000);
}

std::int64_t tokens_to_read(const LiveRequest& request) {
  return request.prompt + request.generated;
}

/// What a request's prompt adds to a queue while nobody else reads: its tokens at the speed of full
/// chunks, since prompts that wait are read together.
Duration prefill_alone(const World& world, const LiveRequest& request, GpuId gpu) {
  if (world.model(request.model).prompts_elsewhere) {
    return Duration(1);
  }
  const StepModel& step = world.step_model(request.model, world.gpu(gpu).host);
  const std::int64_t chunk = world.model(request.model).max_batch_tokens;
  const double per_token =
      static_cast<double>(reading_step(step, chunk).count()) / static_cast<double>(chunk);
  return Duration(
      1 + static_cast<std::int64_t>(per_token * static_cast<double>(tokens_to_read(request))));
}

/// Engines that read prompts on a GPU, if one of `model` did as well.
std::int64_t readers(const World& world, GpuId gpu, ModelId model) {
  const std::vector<ReplicaId>& active = world.gpu(gpu).active;
  return 1 + std::count_if(active.begin(), active.end(), [&](ReplicaId id) {
           const Replica& other = *world.replica(id);
           return other.model != model && other.engine->prefilling();
         });
}

}  // namespace

Duration prefill_time(const World& world, const LiveRequest& request, GpuId gpu) {
  const StepModel& step = world.step_model(request.model, world.gpu(gpu).host);
  const ModelSpec& model = world.model(request.model);
  const std::int64_t first =
      model.prompts_elsewhere ? 1 : std::min(tokens_to_read(request), model.max_batch_tokens);
  return std::max(reading_step(step, first), prefill_alone(world, request, gpu)) *
         readers(world, gpu, request.model);
}

void GpuQueues::add(const World& world, LiveId id, ReplicaId replica) {
  const GpuId gpu = world.replica(replica)->gpus[0];
  const LiveRequest& request = world.request(id);
  const Duration alone = prefill_alone(world, request, gpu);
  PerGpu& state = gpus_[gpu.value()];
  const Waiting waiting{.id = id, .replica = replica, .alone = alone};
  state.queue[request.number] = waiting;
  put(world, state, waiting);
  state.alone[request.model] += alone;
  ++queued_[replica];
}

/// Where a request stands among those on time, or on the late list of policy::plan_queue.
Duration GpuQueues::rank(const World& world, const Waiting& waiting) const {
  const LiveRequest& request = world.request(waiting.id);
  if (options_.rule == policy::QueueRule::kArrival) {
    return request.arrival.time_since_epoch();
  }
  const Duration deadline = due(world, request).time_since_epoch();
  return waiting.late ? waiting.alone + deadline / options_.ageing : deadline;
}

void GpuQueues::put(const World& world, PerGpu& gpu, const Waiting& waiting) {
  (waiting.late ? gpu.late : gpu.on_time)
      .emplace(rank(world, waiting), world.request(waiting.id).number);
}

void GpuQueues::take_out(const World& world, PerGpu& gpu, const Waiting& waiting) {
  (waiting.late ? gpu.late : gpu.on_time)
      .erase({rank(world, waiting), world.request(waiting.id).number});
}

std::int64_t GpuQueues::queued(ReplicaId replica) const {
  const auto found = queued_.find(replica);
  return found == queued_.end() ? 0 : found->second;
}

Duration GpuQueues::backlog(const World& world, GpuId gpu) const {
  const PerGpu& state = gpus_[gpu.value()];
  Duration sum = state.dispatched;
  for (const auto& [model, alone] : state.alone) {
    sum += alone * readers(world, gpu, model);
  }
  return sum;
}

/// What no longer waits in a GPU's queue.
void GpuQueues::forget(PerGpu& gpu, const Waiting& waiting, ModelId model) {
  const auto queued = queued_.find(waiting.replica);
  if (--queued->second == 0) {
    queued_.erase(queued);
  }
  const auto alone = gpu.alone.find(model);
  alone->second -= waiting.alone;
  if (alone->second == Duration{}) {
    gpu.alone.erase(alone);
  }
}

std::int64_t GpuQueues::free_pages(const World& world, GpuId gpu) const {
  std::int64_t free = world.free_pages(gpu);
  for (const ReplicaId id : world.gpu(gpu).replicas) {  // Models on their way come first.
    const Replica& replica = *world.replica(id);
    free -= replica.state == ReplicaPhase::kWaiting ? replica.stages[0].weight_pages : 0;
  }
  return std::max<std::int64_t>(0, free);
}

GpuQueues::Left GpuQueues::pass(const World& world, Actions& actions, GpuId gpu) {
  PerGpu& state = gpus_[gpu.value()];
  Left left;
  if (state.queue.empty() || state.dispatched >= options_.ahead) {
    return left;  // Engines have enough to read.
  }
  std::map<ModelId, std::int64_t> reading;
  for (const auto& [model, alone] : state.alone) {
    reading[model] = readers(world, gpu, model);
  }
  std::vector<policy::QueuedRequest> requests;
  for (const Order* order : {&state.on_time, &state.late}) {
    auto each = order->begin();
    for (std::size_t i = 0; i < kLookedAt && each != order->end(); ++i, ++each) {
      const Waiting& waiting = state.queue.at(each->second);
      const LiveRequest& request = world.request(waiting.id);
      requests.push_back({.id = each->second,
                          .model = request.model,
                          .arrived = request.arrival,
                          .deadline = due(world, request),
                          .prefill = waiting.alone * reading.at(request.model),
                          .kv_pages = pages_of(world, request, gpu),
                          .late = waiting.late});
    }
  }
  const policy::QueuePlan plan = policy::plan_queue({.now = world.now(),
                                                     .dispatched = state.dispatched,
                                                     .free_pages = free_pages(world, gpu),
                                                     .late_credit = state.late_credit,
                                                     .requests = requests},
                                                    options_);
  state.late_credit = plan.late_credit;
  for (const RequestId number : plan.refused) {
    Waiting& waiting = state.queue.at(number);
    take_out(world, state, waiting);
    waiting.late = true;
    put(world, state, waiting);
  }
  for (const RequestId number : plan.dispatch) {
    const Waiting waiting = state.queue.at(number);
    const LiveRequest& request = world.request(waiting.id);
    const Duration prefill = waiting.alone * readers(world, gpu, request.model);
    state.queue.erase(number);
    take_out(world, state, waiting);
    forget(state, waiting, request.model);
    if (!actions.dispatch(
            waiting.id, waiting.replica, waiting.late ? Reason::kLate : Reason::kOnTime)) {
      left.homeless.push_back(waiting.id);
    } else if (!request.live) {
      left.rejected.push_back(request.model);
    } else {
      state.dispatched += prefill;
      reading_[waiting.id] = {.gpu = gpu, .prefill = prefill};
    }
  }
  if (!plan.blocked.empty()) {
    const Waiting& waiting = state.queue.at(plan.blocked[0]);
    const LiveRequest& first = world.request(waiting.id);
    left.blocked = {first.model, pages_of(world, first, gpu)};
  }
  return left;
}

void GpuQueues::read(LiveId id) {
  const auto found = reading_.find(id);
  if (found != reading_.end()) {
    gpus_[found->second.gpu.value()].dispatched -= found->second.prefill;
    reading_.erase(found);
  }
}

std::vector<LiveId> GpuQueues::take(const World& world,
                                    GpuId gpu,
                                    std::optional<ReplicaId> replica) {
  std::vector<LiveId> taken;
  PerGpu& state = gpus_[gpu.value()];
  std::erase_if(state.queue, [&](const auto& entry) {
    const Waiting& waiting = entry.second;
    if (replica && waiting.replica != *replica) {
      return false;
    }
    taken.push_back(waiting.id);
    take_out(world, state, waiting);
    forget(state, waiting, world.request(waiting.id).model);
    return true;
  });
  return taken;
}

}  // namespace heddle::sim
