#include "store/image_layout.h"

#include <algorithm>
#include <array>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "spec/memory_needs.h"
#include "spec/pipe_stage.h"
#include "spec/shard.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::ElementsAre;

std::vector<Role> roles(const ImageLayout& layout, std::int64_t layer) {
  std::vector<Role> found;
  for (const ImageTensor& tensor : layout.tensors) {
    if (tensor.layer == layer) {
      found.push_back(tensor.role);
    }
  }
  return found;
}

spec::ModelSpec random_spec(Rng& rng) {
  const auto between = [&](std::uint64_t least, std::uint64_t most) {
    return static_cast<std::int64_t>(least + rng.below(most - least + 1));
  };
  spec::ModelSpec model;
  model.hidden = between(1, 100);
  model.layers = between(1, 5);
  model.kv_heads = between(1, 4);
  model.heads = model.kv_heads * between(1, 4);
  model.head_dim = 2 * between(1, 20);
  model.intermediate = between(1, 200);
  model.vocab = between(1, 300);
  model.max_position = 100;
  model.window.assign(static_cast<std::size_t>(model.layers), 0);
  model.qkv_bias = rng.below(2) == 0;
  model.out_bias = rng.below(2) == 0;
  model.mlp_bias = rng.below(2) == 0;
  model.qk_norm = rng.below(2) == 0;
  model.tied_embeddings = rng.below(2) == 0;
  if (rng.below(2) == 0) {
    model.experts = {.count = between(1, 6), .active = 1, .intermediate = between(1, 50)};
    model.experts.biased = rng.below(2) == 0;
    model.sinks = rng.below(2) == 0;
    model.mlp_bias = false;
    model.intermediate = rng.below(2) == 0 ? 0 : model.intermediate;
    model.experts.beside = model.intermediate > 0 && rng.below(2) == 0;
  }
  if (rng.below(2) == 0) {
    model.global_kv_heads = between(1, 4);
    model.global_head_dim = 2 * between(1, 20);
    model.keys_are_values = rng.below(2) == 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      model.layer_rope.push_back(rng.below(2) == 0 ? spec::LayerRope::kLocal
                                                   : spec::LayerRope::kModels);
    }
  }
  model.layer_scale = rng.below(2) == 0;
  return model;
}

TEST(ImageLayout, FollowsTheForwardPass) {
  spec::ModelSpec model = tiny_model();
  const ImageLayout plain = plan_image(model, spec::DType::kBf16);
  EXPECT_THAT(roles(plain, -1), ElementsAre(Role::kEmbedding, Role::kFinalNorm, Role::kHead));
  EXPECT_THAT(
      roles(plain, 1),
      ElementsAre(
          Role::kInputNorm, Role::kQkv, Role::kOut, Role::kPostNorm, Role::kGateUp, Role::kDown));
  EXPECT_EQ(plain.tensors.front().role, Role::kEmbedding);
  EXPECT_EQ(plain.tensors.back().role, Role::kHead);
  model.qkv_bias = model.out_bias = model.mlp_bias = model.qk_norm = model.tied_embeddings = true;
  const ImageLayout full = plan_image(model, spec::DType::kBf16);
  EXPECT_THAT(roles(full, 0),
              ElementsAre(Role::kInputNorm,
                          Role::kQkv,
                          Role::kQkvBias,
                          Role::kQNorm,
                          Role::kKNorm,
                          Role::kOut,
                          Role::kOutBias,
                          Role::kPostNorm,
                          Role::kGateUp,
                          Role::kGateUpBias,
                          Role::kDown,
                          Role::kDownBias));
  EXPECT_EQ(full.tensors.back().role, Role::kFinalNorm);
}

TEST(ImageLayout, ExpertsLieBehindEachOther) {
  spec::ModelSpec model = tiny_model();
  model.architecture = spec::Architecture::kMixtral;
  model.intermediate = 0;
  model.experts = {.count = 3, .active = 2, .intermediate = 4};
  const ImageLayout layout = plan_image(model, spec::DType::kBf16);
  EXPECT_THAT(roles(layout, 1),
              ElementsAre(Role::kInputNorm,
                          Role::kQkv,
                          Role::kOut,
                          Role::kPostNorm,
                          Role::kRouter,
                          Role::kExpertsGateUp,
                          Role::kExpertsDown));
  const auto gate_up = std::ranges::find(layout.tensors, Role::kExpertsGateUp, &ImageTensor::role);
  EXPECT_EQ(gate_up->rows, 3 * 2 * 4);
  EXPECT_EQ(gate_up->sources.at(3).name, "model.layers.0.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(gate_up->sources.at(3).row, 12) << "up of expert 1 is behind its gate";

  model.architecture = spec::Architecture::kQwen2Moe;
  model.intermediate = 8;
  const ImageLayout shared = plan_image(model, spec::DType::kI8);
  const auto down = std::ranges::find(shared.tensors, Role::kDown, &ImageTensor::role);
  EXPECT_EQ(down->sources.at(0).name, "model.layers.0.mlp.shared_expert.down_proj.weight");
  const auto gate = std::ranges::find(shared.tensors, Role::kSharedGate, &ImageTensor::role);
  EXPECT_EQ(gate->dtype, spec::DType::kBf16) << "routers are not rounded to int8";
}

TEST(ImageLayout, LayersHaveHeadsOfTheirOwn) {
  spec::ModelSpec model = tiny_model();
  model.layers = 2;
  model.norms = spec::Norms::kAround;
  model.qk_norm = model.layer_scale = model.keys_are_values = true;
  model.layer_rope = {spec::LayerRope::kLocal, spec::LayerRope::kModels};
  model.global_kv_heads = 1;
  model.global_head_dim = 2 * model.head_dim;
  const ImageLayout layout = plan_image(model, spec::DType::kBf16);
  EXPECT_THAT(roles(layout, 1),
              ElementsAre(Role::kInputNorm,
                          Role::kQkv,
                          Role::kQNorm,
                          Role::kKNorm,
                          Role::kOut,
                          Role::kAttentionNorm,
                          Role::kPostNorm,
                          Role::kGateUp,
                          Role::kDown,
                          Role::kMlpNorm,
                          Role::kLayerScale));
  const auto of_layer = [&](Role role, std::int64_t layer) {
    return *std::ranges::find_if(layout.tensors, [&](const ImageTensor& tensor) {
      return tensor.role == role && tensor.layer == layer;
    });
  };
  const ImageTensor local = of_layer(Role::kQkv, 0);
  EXPECT_EQ(local.rows, (model.heads + 2 * model.kv_heads) * model.head_dim);
  EXPECT_EQ(local.sources.at(2).name, "model.layers.0.self_attn.v_proj.weight");
  const ImageTensor global = of_layer(Role::kQkv, 1);
  EXPECT_EQ(global.rows, (model.heads + 2) * model.global_head_dim);
  EXPECT_EQ(global.sources.at(1).name, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(global.sources.at(2).name, global.sources.at(1).name) << "keys are values";
  EXPECT_EQ(global.sources.at(2).row, (model.heads + 1) * model.global_head_dim);
  EXPECT_EQ(of_layer(Role::kKNorm, 1).rows, model.global_head_dim);
  EXPECT_EQ(of_layer(Role::kOut, 1).columns, model.heads * model.global_head_dim);
}

TEST(ImageLayout, ExpertsBesideAnMlpHaveNormsOfTheirOwn) {
  spec::ModelSpec model = tiny_model();
  model.norms = spec::Norms::kAround;
  model.experts = {.count = 3, .active = 2, .intermediate = 4, .beside = true};
  const ImageLayout layout = plan_image(model, spec::DType::kBf16);
  EXPECT_THAT(roles(layout, 0),
              ElementsAre(Role::kInputNorm,
                          Role::kQkv,
                          Role::kOut,
                          Role::kAttentionNorm,
                          Role::kPostNorm,
                          Role::kRouter,
                          Role::kExpertsNorm,
                          Role::kRouterNorm,
                          Role::kMlpOwnNorm,
                          Role::kExpertsOwnNorm,
                          Role::kExpertScales,
                          Role::kExpertsGateUp,
                          Role::kExpertsDown,
                          Role::kGateUp,
                          Role::kDown,
                          Role::kMlpNorm));
  const auto name_of = [&](Role role) {
    return std::ranges::find(layout.tensors, role, &ImageTensor::role)->sources.at(0).name;
  };
  EXPECT_EQ(name_of(Role::kRouter), "model.layers.0.router.proj.weight");
  EXPECT_EQ(name_of(Role::kRouterNorm), "model.layers.0.router.scale");
  EXPECT_EQ(name_of(Role::kExpertScales), "model.layers.0.router.per_expert_scale");
  EXPECT_EQ(name_of(Role::kExpertsGateUp), "model.layers.0.experts.0.gate_proj.weight");
  EXPECT_EQ(name_of(Role::kGateUp), "model.layers.0.mlp.gate_proj.weight");
}

TEST(ImageLayout, GathersQueriesKeysAndValues) {
  const ImageLayout layout = plan_image(tiny_model(), spec::DType::kF32);
  const ImageTensor& qkv = layout.tensors[2];
  ASSERT_EQ(qkv.role, Role::kQkv);
  EXPECT_EQ(qkv.rows, 64);
  EXPECT_EQ(qkv.columns, 24);
  EXPECT_EQ(qkv.bytes, 64U * 24U * 4U);
  ASSERT_EQ(qkv.sources.size(), 3U);
  EXPECT_EQ(qkv.sources[0].name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(qkv.sources[1].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(qkv.sources[1].row, 32);
  EXPECT_EQ(qkv.sources[1].rows, 16);
  EXPECT_EQ(qkv.sources[2].row, 48);
}

TEST(ImageLayout, OneRankAddsTheBiasesBehindTheSums) {
  spec::ModelSpec model = tiny_model();
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  const auto has = [&](std::int64_t rank, Role role) {
    const auto found =
        roles(plan_image(spec::shard_of(model, {.rank = rank, .ranks = 2}), spec::DType::kBf16), 1);
    return std::find(found.begin(), found.end(), role) != found.end();
  };
  for (const Role once : {Role::kOutBias, Role::kDownBias}) {
    EXPECT_TRUE(has(0, once));
    EXPECT_FALSE(has(1, once));
  }
  for (const Role of_rows : {Role::kQkvBias, Role::kGateUpBias, Role::kPostNorm}) {
    EXPECT_TRUE(has(0, of_rows) && has(1, of_rows));
  }
}

TEST(ImageLayout, StagesHaveTheTensorsOfTheModelOnce) {
  const spec::ModelSpec model = tiny_model();
  const ImageLayout whole = plan_image(model, spec::DType::kBf16);
  std::multiset<std::pair<Role, std::int64_t>> expected;
  for (const ImageTensor& tensor : whole.tensors) {
    expected.emplace(tensor.role, tensor.layer);
  }
  std::multiset<std::pair<Role, std::int64_t>> found;
  for (std::int64_t i = 0; i < 2; ++i) {
    const ImageLayout stage =
        plan_image(spec::stage_of(model, {.index = i, .ends = {1, model.layers}}), whole.dtype);
    for (const ImageTensor& tensor : stage.tensors) {
      found.emplace(tensor.role, tensor.layer);
    }
    EXPECT_EQ(stage.stage_end.front() > 0, i == 0) << "the embedding is the leader's";
    EXPECT_EQ(stage.stage_end.back() > *(stage.stage_end.end() - 2), i == 0) << "so is the head";
  }
  EXPECT_EQ(found, expected);
}

/// It as a shard of a larger model, as often as not.
spec::ModelSpec random_shard(spec::ModelSpec model, Rng& rng) {
  const auto ranks = static_cast<std::int64_t>(1 + rng.below(3));
  model.heads *= ranks;
  model.kv_heads *= ranks;
  model.global_kv_heads *= ranks;
  model.intermediate *= ranks;
  model.experts.intermediate *= ranks;
  model.vocab += ranks;
  const std::uint64_t rank = rng.below(static_cast<std::uint64_t>(ranks));
  return spec::shard_of(model, {.rank = static_cast<std::int64_t>(rank), .ranks = ranks});
}

TEST(ImageLayout, HoldsForAnyModel) {
  constexpr std::uint64_t kSeed = 7;
  Rng rng(kSeed);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(fmt::format("seed {} round {}", kSeed, round));
    spec::ModelSpec model = random_spec(rng);
    model = random_shard(model, rng);
    constexpr std::array kDTypes{
        spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8, spec::DType::kStored};
    const spec::DType dtype = kDTypes.at(rng.below(4));
    // Or a stage of it.
    const auto stages =
        1 + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(model.layers)));
    const auto index = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(stages)));
    model = spec::stage_of(
        model, {.index = index, .ends = spec::cut_layers(model, dtype, stages).value()});
    const ImageLayout layout = plan_image(model, dtype);
    std::uint64_t end = 0;
    std::uint64_t payload = 0;
    const ImageTensor* before = nullptr;
    for (const ImageTensor& tensor : layout.tensors) {
      EXPECT_EQ(tensor.offset % 64, 0U);
      EXPECT_GE(tensor.offset, end);
      EXPECT_LT(tensor.offset - end, 64U);
      if (tensor.columns > 1) {
        EXPECT_EQ(tensor.dtype,
                  tensor.role == Role::kEmbedding || tensor.role == Role::kRouter ||
                          tensor.role == Role::kSharedGate || dtype == spec::DType::kStored
                      ? spec::compute_dtype(dtype)
                      : dtype);
      }
      std::int64_t row = 0;
      for (const ImageSource& source : tensor.sources) {
        EXPECT_EQ(source.row, row);
        row += source.rows;
      }
      if (tensor.sources.empty()) {
        EXPECT_EQ(before->dtype, spec::DType::kI8);
        EXPECT_EQ(before->rows, tensor.rows);
      } else {
        EXPECT_EQ(row, tensor.rows);
      }
      before = &tensor;
      const auto elements = static_cast<std::uint64_t>(tensor.rows * tensor.columns);
      EXPECT_EQ(tensor.bytes, elements * spec::dtype_bytes(tensor.dtype));
      end = tensor.offset + tensor.bytes;
      payload += tensor.bytes;
    }
    EXPECT_EQ(layout.bytes, end);
    EXPECT_EQ(payload, spec::weight_bytes(model, dtype));
    ASSERT_EQ(layout.stage_end.size(), static_cast<std::size_t>(model.layers) + 2);
    EXPECT_TRUE(std::is_sorted(layout.stage_end.begin(), layout.stage_end.end()));
    EXPECT_EQ(layout.stage_end.back(), layout.bytes);
    // The stage that a tensor belongs to ends at or behind it, and the one before at or ahead of
    // it.
    for (const ImageTensor& tensor : layout.tensors) {
      const std::size_t stage = tensor.role == Role::kEmbedding ? 0
                                : tensor.layer >= 0 ? static_cast<std::size_t>(tensor.layer) + 1
                                                    : layout.stage_end.size() - 1;
      EXPECT_LE(tensor.offset + tensor.bytes, layout.stage_end[stage]);
      EXPECT_TRUE(stage == 0 || layout.stage_end[stage - 1] <= tensor.offset);
    }
  }
}

}  // namespace
}  // namespace heddle::store
