#include "agent/host_model.h"

#include <algorithm>

#include "engine/engine.h"
#include "engine/kv_plan.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "store/image_loader.h"

namespace heddle::agent {

namespace {

constexpr std::int64_t kBatchTokensMin = 16;
constexpr std::int64_t kBatchTokensMax = 512;
constexpr std::uint64_t kWorkspaceShare = 16;
/// A model for whose KV there is less room than for one answer of this length is not worth loading.
constexpr std::int64_t kUsefulTokens = 256;

Result<policy::Footprint> footprint_of(const spec::ModelSpec& model,
                                       spec::DType dtype,
                                       std::uint64_t image_bytes,
                                       const HostGeometry& geometry) {
  const Result<engine::KvPlan> plan =
      engine::plan_kv(model, engine::all_layers(model), dtype, geometry.page_bytes);
  if (!plan) {
    return plan.error();
  }
  policy::Footprint footprint;
  for (const engine::KvGroupPlan& group : plan->groups) {
    footprint.kv.push_back({.tokens_per_block = group.geometry.block_tokens,
                            .blocks_per_page = group.geometry.blocks_per_page,
                            .window = group.window});
  }
  const std::int64_t useful = std::min(kUsefulTokens, model.max_position);
  footprint.min_kv_pages = policy::kv_pages(footprint.kv, {&useful, 1});
  footprint.image_pages =
      static_cast<std::int64_t>(store::pages_for(image_bytes, geometry.page_bytes));
  footprint.overhead_pages = static_cast<std::int64_t>(store::pages_for(
      engine::workspace_bytes(model, geometry.max_batch_tokens), geometry.page_bytes));
  return footprint;
}

}  // namespace

Result<HostModel> open_host_model(const std::string& source,
                                  const store::ModelPlaces& places,
                                  spec::DType dtype,
                                  const HostGeometry& geometry) {
  const Result<std::filesystem::path> directory = store::find_model(source, places);
  if (!directory) {
    return directory.error();
  }
  Result<store::Checkpoint> checkpoint = store::Checkpoint::open(*directory);
  if (!checkpoint) {
    return checkpoint.error();
  }
  HostModel model;
  model.directory = *directory;
  model.spec = std::move(checkpoint->config.model);
  model.dtype = dtype;
  model.image_bytes = store::plan_image(model.spec, dtype).bytes;
  model.unused = std::move(checkpoint->unused);
  Result<policy::Footprint> footprint =
      footprint_of(model.spec, dtype, model.image_bytes, geometry);
  if (!footprint) {
    return footprint.error();
  }
  model.footprint = std::move(*footprint);
  return model;
}

std::int64_t choose_batch_tokens(const std::vector<spec::ModelSpec>& models,
                                 std::uint64_t device_bytes) {
  std::int64_t tokens = kBatchTokensMax;
  const auto fits = [&](const spec::ModelSpec& model) {
    return engine::workspace_bytes(model, tokens) * kWorkspaceShare <= device_bytes;
  };
  while (tokens > kBatchTokensMin && !std::all_of(models.begin(), models.end(), fits)) {
    tokens /= 2;
  }
  return tokens;
}

}  // namespace heddle::agent
