#include "sim/planes/dedicated.h"

#include <algorithm>
#include <cmath>

namespace heddle::sim {
namespace {

/// Instances that a model's offline rate keeps busy: requests in service at once (Little's law,
/// with the step time of a half full batch) over the batch size.
std::int64_t instances_for(const World& world, ModelId model, const OfflineDemand& demand) {
  const ModelSpec& spec = world.model(model);
  const StepModel& step = world.step_model(model, HostId(0));
  const std::int64_t batch = std::max<std::int64_t>(1, spec.max_sequences / 2);
  const double context = demand.input_tokens + demand.output_tokens / 2;
  const double decode =
      (static_cast<double>(step.base_ps(batch, batch) + step.fixed_ps()) +
       static_cast<double>(batch) * context * static_cast<double>(step.context_ps())) *
      1e-12;
  const auto prompt = std::max<std::int64_t>(1, static_cast<std::int64_t>(demand.input_tokens));
  const double prefill = static_cast<double>(step.base_ps(prompt, 1)) * 1e-12;
  const double busy = demand.requests_per_second *
                      (demand.output_tokens * decode / static_cast<double>(batch) + prefill);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(busy / 0.8)));
}

}  // namespace

void DedicatedPlane::place(const World& world, Actions& actions) {
  const auto add = [&](ModelId model) {
    const auto open = [&](const Gpu& gpu) {
      return gpu.replicas.empty() && fits(world, model, gpu.id);
    };
    if (const auto group = first_group(world, world.model(model).tp, open)) {
      actions.start(placed_.emplace_back(whole(world, model, *group)), Reason::kStatic);
    }
  };
  const std::size_t count = world.models().size();
  for (std::size_t i = 0; i < count; ++i) {
    add(ModelId(i));
  }
  for (std::size_t i = 0; i < count && i < inputs_.demand.size(); ++i) {
    const std::int64_t wanted = instances_for(world, ModelId(i), inputs_.demand[i]);
    for (std::int64_t extra = 1; extra < wanted; ++extra) {
      add(ModelId(i));
    }
  }
}

void DedicatedPlane::decide(const Notice& notice, const World& world, Actions& actions) {
  if (notice.kind == NoticeKind::kStart) {
    return place(world, actions);
  }
  serve_in_place(notice, world, actions, queues_, placed_);
}

}  // namespace heddle::sim
