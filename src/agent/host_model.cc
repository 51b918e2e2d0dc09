#include "agent/host_model.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/kv_plan.h"
#include "engine/workspace.h"
#include "spec/operations.h"
#include "spec/pipe_stage.h"
#include "spec/shard.h"
#include "store/checkpoint.h"
#include "store/expert_parts.h"
#include "store/image_layout.h"
#include "store/image_loader.h"
#include "store/model_source.h"

namespace heddle::agent {

namespace {

constexpr std::int64_t kBatchTokensMin = 16;
constexpr std::uint64_t kWorkspaceShare = 16;

Result<policy::Footprint> footprint_of(device::Kind kind,
                                       const spec::ModelSpec& model,
                                       spec::DType dtype,
                                       std::uint64_t image_bytes,
                                       const HostGeometry& geometry) {
  const Result<engine::KvPlan> plan =
      engine::plan_kv(model, spec::own_layers(model), dtype, geometry.page_bytes);
  if (!plan) {
    return plan.error();
  }
  policy::Footprint footprint;
  for (const engine::KvGroupPlan& group : plan->groups) {
    footprint.kv.push_back({.tokens_per_block = group.geometry.block_tokens,
                            .blocks_per_page = group.geometry.blocks_per_page,
                            .window = group.window});
  }
  const std::int64_t useful = std::min(policy::kUsefulTokens, model.max_position);
  footprint.min_kv_pages = policy::kv_pages(footprint.kv, {&useful, 1});
  footprint.image_pages =
      static_cast<std::int64_t>(store::pages_for(image_bytes, geometry.page_bytes));
  footprint.overhead_pages = static_cast<std::int64_t>(
      store::pages_for(engine::workspace_bytes(
                           kind, model, dtype, spec::step_tokens(model, geometry.max_batch_tokens)),
                       geometry.page_bytes));
  if (kind == device::Kind::kCuda) {
    footprint.graph_pages = static_cast<std::int64_t>(
        store::pages_for(engine::graph_bytes(model), geometry.page_bytes));
  }
  return footprint;
}

/// Gives the shards that need fewer pages beside their KV the rest as overhead.
void even_out(std::vector<HostModel>& shards, policy::Footprint HostModel::* footprint) {
  std::int64_t most = 0;
  for (const HostModel& shard : shards) {
    const policy::Footprint& needs = shard.*footprint;
    most = std::max(most, needs.image_pages + needs.overhead_pages);
  }
  for (HostModel& shard : shards) {
    policy::Footprint& needs = shard.*footprint;
    needs.overhead_pages = most - needs.image_pages;
  }
}

store::ModelPlaces places_from(const std::filesystem::path& base) {
  return store::find_places(base, store::process_environment());
}

struct Opened {
  std::filesystem::path directory{};
  store::Checkpoint checkpoint;
};

Result<Opened> open_checkpoint(const std::string& source,
                               const std::filesystem::path& base,
                               const HostGeometry& geometry,
                               spec::KvType kv) {
  Result<std::filesystem::path> directory = store::find_model(source, places_from(base));
  if (!directory) {
    return directory.error();
  }
  Result<store::Checkpoint> checkpoint = store::Checkpoint::open(*directory);
  if (!checkpoint) {
    return checkpoint.error();
  }
  std::vector<spec::DType>& formats = checkpoint->config.model.formats;
  if (!geometry.keeps_f8 && std::ranges::any_of(formats, spec::is_f8)) {
    formats.clear();  // No checkpoint has other blocks beside.
  }
  checkpoint->config.model.kv = kv;
  return Opened{.directory = std::move(*directory), .checkpoint = std::move(*checkpoint)};
}

/// The dtype that images of a checkpoint have: of one without blocks kStored is bfloat16.
spec::DType dtype_of(const spec::ModelSpec& model, spec::DType dtype) {
  return dtype == spec::DType::kStored && model.formats.empty() ? spec::DType::kBf16 : dtype;
}

/// Has so large a share of the experts take turns in memory: all of them, where that saves nothing.
void set_slots(spec::ModelSpec& model,
               spec::DType dtype,
               double resident,
               const HostGeometry& geometry) {
  const std::int64_t experts = model.experts.count * model.layers;
  const auto wanted = static_cast<std::int64_t>(resident * static_cast<double>(experts));
  model.experts.slots = std::max<std::int64_t>(wanted, 1);
  const store::ImageLayout layout = store::plan_image(model, dtype_of(model, dtype));
  const store::PartPages part = store::part_pages(model, layout, geometry.page_bytes);
  if (part.resident + part.slots >=
      static_cast<std::int64_t>(store::pages_for(layout.bytes, geometry.page_bytes))) {
    model.experts.slots = 0;
  }
}

/// The parts of a model as their hosts know them.
Result<std::vector<HostModel>> host_models(const Opened& opened,
                                           const std::vector<spec::ModelSpec>& specs,
                                           spec::DType dtype,
                                           const HostGeometry& geometry) {
  dtype = dtype_of(opened.checkpoint.config.model, dtype);
  std::vector<HostModel> models;
  for (const spec::ModelSpec& part : specs) {
    HostModel& model = models.emplace_back();
    model.directory = opened.directory;
    model.written = store::newest_write(opened.directory);
    model.spec = part;
    model.dtype = dtype;
    const store::ImageLayout layout = store::plan_image(part, dtype);
    model.image_bytes = layout.bytes;
    model.unused = opened.checkpoint.unused;
    for (const auto& [kind, needs] : {std::pair(device::Kind::kCpu, &model.footprint),
                                      std::pair(device::Kind::kCuda, &model.gpu_footprint)}) {
      auto footprint = footprint_of(kind, part, dtype, model.image_bytes, geometry);
      if (!footprint) {
        return footprint.error();
      }
      *needs = std::move(*footprint);
    }
    if (part.experts.slots > 0) {
      const store::PartPages pages = store::part_pages(part, layout, geometry.page_bytes);
      model.host_pages = model.footprint.image_pages;
      model.footprint.image_pages = pages.resident + pages.slots;
    }
  }
  return models;
}

}  // namespace

Result<HostModel> open_host_model(const std::string& source,
                                  const std::filesystem::path& base,
                                  spec::DType dtype,
                                  const HostGeometry& geometry,
                                  spec::KvType kv) {
  Result<std::vector<HostModel>> models =
      open_host_shards(source, base, dtype, geometry, 1, {}, kv);
  if (!models) {
    return models.error();
  }
  return std::move(models->front());
}

Result<std::vector<HostModel>> open_host_shards(const std::string& source,
                                                const std::filesystem::path& base,
                                                spec::DType dtype,
                                                const HostGeometry& geometry,
                                                std::int64_t ranks,
                                                const WholeModel& settings,
                                                spec::KvType kv) {
  const Result<Opened> opened = open_checkpoint(source, base, geometry, kv);
  if (!opened) {
    return opened.error();
  }
  spec::ModelSpec whole = opened->checkpoint.config.model;
  whole.adapter_rank = ranks == 1 ? settings.adapter_rank : 0;
  if (settings.experts_resident < 1 && whole.experts.count == 0) {
    return Error{Code::kInvalidArgument,
                 "keep experts of " + source + " at the host: it has none; leave `experts` out"};
  }
  if (settings.experts_resident < 1 && ranks == 1) {
    set_slots(whole, dtype, settings.experts_resident, geometry);
  }
  if (const Result<void> possible = spec::divides(whole, ranks); !possible) {
    return possible.error();
  }
  if (settings.adapter_rank > 0 && spec::is_encoder(whole)) {
    return Error{Code::kInvalidArgument,
                 opened->directory.string() +
                     " is an encoder, and only models that generate text "
                     "have LoRA adapters"};
  }
  std::vector<spec::ModelSpec> specs;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    specs.push_back(ranks == 1 ? whole : spec::shard_of(whole, {.rank = rank, .ranks = ranks}));
  }
  auto models = host_models(*opened, specs, dtype, geometry);
  if (models) {
    even_out(*models, &HostModel::footprint);
    even_out(*models, &HostModel::gpu_footprint);
  }
  return models;
}

Result<std::vector<HostModel>> open_host_stages(const std::string& source,
                                                const std::filesystem::path& base,
                                                spec::DType dtype,
                                                const HostGeometry& geometry,
                                                std::int64_t stages,
                                                spec::KvType kv) {
  const Result<Opened> opened = open_checkpoint(source, base, geometry, kv);
  if (!opened) {
    return opened.error();
  }
  const spec::ModelSpec& whole = opened->checkpoint.config.model;
  const auto ends = spec::cut_layers(whole, dtype, stages);
  if (!ends) {
    return ends.error();
  }
  std::vector<spec::ModelSpec> specs;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    specs.push_back(spec::stage_of(whole, {.index = stage, .ends = *ends}));
  }
  return host_models(*opened, specs, dtype, geometry);
}

std::int64_t choose_batch_tokens(const std::vector<std::string>& sources,
                                 const std::filesystem::path& base,
                                 device::Kind kind,
                                 std::uint64_t device_bytes,
                                 std::int64_t most) {
  std::int64_t tokens = most;
  for (const std::string& source : sources) {
    const Result<std::filesystem::path> directory = store::find_model(source, places_from(base));
    if (!directory) {
      continue;  // Whoever opens it says so.
    }
    const Result<store::ModelConfig> config = store::read_model_config(*directory);
    while (config && tokens > kBatchTokensMin &&
           engine::workspace_bytes(kind, config->model, spec::DType::kF32, tokens) *
                   kWorkspaceShare >
               device_bytes) {
      tokens /= 2;
    }
  }
  return tokens;
}

}  // namespace heddle::agent
