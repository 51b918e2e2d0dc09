#include "sim/planes/qlm.h"

#include <algorithm>

namespace heddle::sim {
namespace {

/// A GPU takes requests from its head group while fewer than this wait in its engine: its
/// "backpressure", which is not those that run.
constexpr std::size_t kBacklog = 10;

}  // namespace

QlmPlane::QlmPlane(Flags& flags)
    : swap_(from_seconds(flags.number("swap", 40))),
      group_size_(static_cast<std::size_t>(std::max(1.0, flags.number("group", 128)))),
      rng_(static_cast<std::uint64_t>(flags.number("seed", 1))) {}

/// How long one request of a model keeps a GPU, as the estimator has it: mean tokens over
/// throughput, here a prompt and an answer of usual length in a batch.
Duration QlmPlane::service_time(const World& world, ModelId model) {
  const StepModel& step = world.step_model(model, HostId(0));
  constexpr std::int64_t kTokens = 256;
  constexpr std::int64_t kBatch = kBacklog;
  return Duration((step.base_ps(kTokens, 1) + kTokens * step.base_ps(kBatch, kBatch) / kBatch) /
                  1000);
}

/// Whether some group would wait beyond its deadline in the present order.
bool QlmPlane::late_as_it_is(const World& world, const Queue& queue) const {
  Instant at = world.now();
  std::optional<ModelId> before;
  for (const Group& group : queue.groups) {
    at += before == group.model ? Duration{} : swap_;
    if (at > group.deadline) {
      return true;
    }
    at += static_cast<std::int64_t>(group.requests.size()) * service_time(world, group.model);
    before = group.model;
  }
  return false;
}

/// By deadline, but for the group that is being served.
void QlmPlane::order(const World& world, Queue& queue) {
  const auto earlier = [](const Group& a, const Group& b) {
    return std::pair(a.deadline, a.model) < std::pair(b.deadline, b.model);
  };
  if (queue.groups.size() > 2 &&
      !std::is_sorted(queue.groups.begin() + 1, queue.groups.end(), earlier) &&
      late_as_it_is(world, queue)) {
    std::sort(queue.groups.begin() + 1, queue.groups.end(), earlier);
  }
}

/// GPUs with a queue that could hold the model.
std::vector<GpuId> QlmPlane::large_enough(const World& world, ModelId model) const {
  std::vector<GpuId> large;
  for (const auto& [gpu, queue] : queues_) {
    if (fits(world, model, gpu)) {
      large.push_back(gpu);
    }
  }
  return large;
}

/// A request joins a group of its model with room, or a new one in the model's queue, which is
/// drawn at random when the model first comes.
void QlmPlane::add(const World& world, const Notice& notice) {
  const Instant due = world.request(notice.request).arrival + world.model(notice.model).slo_ttft;
  for (auto& [gpu, queue] : queues_) {
    for (Group& group : queue.groups) {
      if (group.model == notice.model && group.requests.size() < group_size_) {
        group.requests.push_back(notice.request);
        group.deadline = std::min(group.deadline, due);
        return order(world, queue);
      }
    }
  }
  auto home = homes_.find(notice.model);
  if (home == homes_.end()) {
    const std::vector<GpuId> large = large_enough(world, notice.model);
    home = homes_.emplace(notice.model, large[rng_.below(large.size())]).first;
  }
  Queue& queue = queues_.at(home->second);
  queue.groups.push_back({.model = notice.model, .deadline = due, .requests = {notice.request}});
  order(world, queue);
}

void QlmPlane::pull(const World& world, Actions& actions, GpuId gpu) {
  Queue& queue = queues_.at(gpu);
  while (!queue.groups.empty()) {
    Group& head = queue.groups.front();
    if (head.requests.empty()) {
      queue.groups.pop_front();
      continue;
    }
    const Replica* replica = queue.replica ? world.replica(*queue.replica) : nullptr;
    if (replica == nullptr) {
      std::vector<GpuId> gpus;
      for (std::int64_t i = 0; i < world.model(head.model).tp; ++i) {
        gpus.emplace_back(gpu.value() + static_cast<std::uint64_t>(i));
        if (!world.gpu(gpus.back()).up) {
          return;
        }
      }
      queue.replica = actions.start({.model = head.model,
                                     .stages = {{.gpus = gpus}},
                                     .source = WeightSource::kNothing,
                                     .after = swap_},
                                    Reason::kTurn);
      return;
    }
    if (replica->model != head.model) {
      if (replica->serves() && replica->load() == 0) {
        actions.evict(*queue.replica, Reason::kTurn, head.model);
      }
      return;
    }
    if (!replica->serves() || replica->engine->waiting() >= kBacklog) {
      return;
    }
    const LiveId request = head.requests.front();
    head.requests.pop_front();
    actions.dispatch(request, *queue.replica, Reason::kTurn);
  }
}

void QlmPlane::decide(const Notice& notice, const World& world, Actions& actions) {
  switch (notice.kind) {
    case NoticeKind::kStart:
      for (const ModelSpec& model : world.models()) {
        width_ = std::max(width_, model.tp);
      }
      for (const Host& host : world.hosts()) {
        for (std::size_t i = 0; i + static_cast<std::size_t>(width_) <= host.gpus.size();
             i += static_cast<std::size_t>(width_)) {
          queues_[host.gpus[i]] = {};
        }
      }
      return;
    case NoticeKind::kArrival:
      if (large_enough(world, notice.model).empty()) {
        return actions.reject(notice.request, Reason::kTooLarge);
      }
      add(world, notice);
      break;
    case NoticeKind::kGone:
      for (auto& [gpu, queue] : queues_) {
        if (queue.replica == notice.replica) {
          queue.replica.reset();
        }
      }
      break;
    case NoticeKind::kFinished:
    case NoticeKind::kServing:
    case NoticeKind::kGpuUp:
      break;
    default:
      return;
  }
  for (const auto& [gpu, queue] : queues_) {
    pull(world, actions, gpu);
  }
}

}  // namespace heddle::sim
