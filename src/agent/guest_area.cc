#include "agent/guest_area.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/log.h"
#include "engine/kv_plan.h"
#include "engine/layer_range.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "spec/operations.h"

#include <fcntl.h>

namespace heddle::agent {
namespace {

/// Guest sequences of one step, and blocks of all of them: steps of more are computed at home.
constexpr std::int64_t kGuestsMax = 256;
constexpr std::int64_t kBlocksOfAll = std::int64_t{1} << 22U;

/// The heads of layers that have guests, which are those without a window, unless these differ.
std::optional<spec::Heads> heads_of_guests(const spec::ModelSpec& model) {
  std::optional<spec::Heads> found;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const bool stays = !model.window.empty() && model.window[static_cast<std::size_t>(layer)] > 0;
    if (stays || spec::keeps_state(model, layer)) {
      continue;
    }
    const spec::Heads heads = spec::heads_of(model, layer);
    if (found && *found != heads) {
      return std::nullopt;
    }
    found = heads;
  }
  return found ? found : spec::heads_of(model, spec::LayerRope::kModels);
}

}  // namespace

Result<std::shared_ptr<weave::JobArea>> make_guest_area(const HostModel& model,
                                                        std::size_t page_bytes,
                                                        device::Kind kind) {
  const spec::ModelSpec& spec = model.spec;
  const auto plan = engine::plan_kv(spec, engine::all_layers(spec), model.dtype, page_bytes);
  if (!plan) {
    return plan.error();
  }
  const Result<std::string> kernels = ops::kernels_name(kind);
  if (!kernels) {
    return kernels.error();
  }
  const std::optional<spec::Heads> heads = heads_of_guests(spec);
  if (!heads) {
    return Error{Code::kInvalidArgument,
                 "guests of a model whose layers without a window have heads of two sizes"};
  }
  weave::Geometry geometry{.page_bytes = static_cast<std::int64_t>(page_bytes),
                           .kv = static_cast<std::int64_t>(plan->dtype),
                           .heads = heads->query,
                           .kv_heads = heads->kv,
                           .head_dim = heads->dim,
                           .border = ops::attention_border(kind),
                           .layers = spec.layers,
                           .groups = static_cast<std::int64_t>(plan->kv_groups()),
                           .scale = spec::attention_scale(spec),
                           .soft_cap = static_cast<float>(spec.scales.attention_cap)};
  std::copy_n(kernels->begin(),
              std::min(kernels->size(), geometry.kernels.size()),
              geometry.kernels.begin());
  for (const engine::KvGroupPlan& group : std::span(plan->groups).first(plan->kv_groups())) {
    geometry.blocks = std::max(geometry.blocks, group.geometry.blocks_for(spec.max_position));
  }
  geometry.blocks = std::min(geometry.blocks, weave::kBlocksMax);
  geometry.rows =
      std::clamp<std::int64_t>(kBlocksOfAll / (geometry.blocks * geometry.groups), 1, kGuestsMax);
  if (spec.layers > weave::kLayersMax || geometry.groups > weave::kGroupsMax) {
    return Error{Code::kInvalidArgument,
                 "guests of a model of " + std::to_string(spec.layers) + " layers; at most " +
                     std::to_string(weave::kLayersMax) + " can have any"};
  }
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const engine::KvPlan::Place& place = plan->place(layer);
    const memory::KvGeometry& kv = plan->groups[place.group].geometry;
    const auto offset = place.layer_in_group * static_cast<std::int64_t>(kv.layer_stride());
    geometry.places[static_cast<std::size_t>(layer)] = {
        .group = static_cast<std::int64_t>(place.group),
        .key_offset = offset,
        .value_offset = offset + static_cast<std::int64_t>(kv.value_offset()),
        .block_bytes = static_cast<std::int64_t>(kv.block_bytes),
        .block_tokens = kv.block_tokens};
  }
  return weave::JobArea::create(geometry);
}

GuestEnds connect_guests(const HostModel& model, std::size_t page_bytes, device::Kind kind) {
  const auto area = make_guest_area(model, page_bytes, kind);
  GuestEnds ends;
  for (std::vector<rpc::Descriptor>* end : {&ends.host, &ends.hot}) {
    end->emplace_back(area ? ::fcntl((*area)->fd(), F_DUPFD_CLOEXEC, 0) : -1);
  }
  if (!ends.host[0] || !ends.hot[0]) {
    log::warning(
        "nobody runs attention over guests",
        {{"model", model.name}, {"error", area ? std::strerror(errno) : area.error().message}});
    return {};
  }
  return ends;
}

}  // namespace heddle::agent
