#include "engine/workspace.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "spec/block_panels.h"

namespace heddle::engine {
namespace {

using device::Kind;
constexpr auto kBf16 = spec::DType::kBf16;
constexpr auto kF32 = spec::DType::kF32;

const spec::ModelSpec kLarge{.hidden = 4096,
                             .layers = 32,
                             .heads = 32,
                             .kv_heads = 8,
                             .head_dim = 128,
                             .intermediate = 14336,
                             .vocab = 128256};

TEST(Workspace, ScratchLiesBehindTheActivationsAndWithinIt) {
  for (const Kind kind : {Kind::kCpu, Kind::kCuda}) {
    for (const std::int64_t tokens : {1, 7, 64}) {
      spec::ModelSpec model = kLarge;
      model.hidden = 72;
      model.intermediate = 100;
      model.vocab = 1001;
      std::vector<std::byte> memory(workspace_bytes(kind, model, kBf16, tokens) + 256);
      const auto skip = (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) % 256;
      std::byte* const base = memory.data() + skip;
      const Workspace workspace = place_workspace(kind, model, kBf16, tokens, base);
      EXPECT_EQ(workspace.activations.hidden.data, base);
      EXPECT_GE(workspace.scratch, base + activation_bytes(model, kBf16, tokens));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.scratch) % 256, 0U);
      EXPECT_GE(workspace.scratch_bytes, static_cast<std::size_t>(tokens) * (128 * 2 + 4));
      EXPECT_EQ(workspace.scratch + workspace.scratch_bytes,
                base + workspace_bytes(kind, model, kBf16, tokens));
    }
  }
}

// Beside tokens: plain rows of the largest matrix, and what the library gives of them, each with a
// scale.
TEST(Workspace, HasRoomForWhatFp8OnBothSidesGives) {
  constexpr std::int64_t kTokens = 512;
  spec::ModelSpec model = kLarge;
  const auto bytes = [&](spec::DType format, std::int64_t tokens) {
    model.formats.assign(spec::format_count(model.layers), format);
    return workspace_bytes(Kind::kCuda, model, spec::DType::kStored, tokens);
  };
  const auto more = [&](std::int64_t tokens) {
    return bytes(spec::DType::kF8Both, tokens) - bytes(spec::DType::kF8, tokens);
  };
  EXPECT_EQ(more(kTokens), 0U) << "slices of large matrices have room";
  model.hidden = 256;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.intermediate = 512;
  EXPECT_GE(more(kTokens), 1024U * 4U * (kTokens + 1));
  EXPECT_EQ(more(64), 0U) << "few tokens are taken as they are";
}

TEST(Workspace, GrowsWithTheTokensAndHasNoMoreThanIsOfUse) {
  EXPECT_GT(workspace_bytes(Kind::kCpu, kLarge, kBf16, 512),
            workspace_bytes(Kind::kCpu, kLarge, kBf16, 64) + 448U * 4U * 4096U);
  EXPECT_EQ(workspace_bytes(Kind::kCpu, kLarge, spec::DType::kI8, 512) + 512 * 2 * 14336,
            workspace_bytes(Kind::kCpu, kLarge, kBf16, 512))
      << "bfloat16 may be widened";
  const auto scratch = [](std::int64_t tokens) {
    return workspace_bytes(Kind::kCuda, kLarge, kF32, tokens) -
           activation_bytes(kLarge, kF32, tokens);
  };
  EXPECT_EQ(scratch(32), 8U * 32U * 32U * 130U * 4U);
  EXPECT_EQ(scratch(8192), 64U << 20U);
}

TEST(Workspace, OnGpusHasRoomForBlocksThatAreUnpacked) {
  spec::ModelSpec model = kLarge;
  model.formats.assign(spec::format_count(model.layers), spec::DType::kQ4K);
  const auto more = [](Kind kind, const spec::ModelSpec& of, std::int64_t tokens) {
    return workspace_bytes(kind, of, spec::DType::kStored, tokens) -
           workspace_bytes(kind, of, kBf16, tokens);
  };
  EXPECT_EQ(more(Kind::kCuda, model, 129), 32U << 20U);
  EXPECT_EQ(more(Kind::kCuda, model, 128), 0U) << "so few are not unpacked";
  EXPECT_EQ(more(Kind::kCpu, model, 129), 0U);
  model.hidden = 256;
  model.heads = 2;
  model.kv_heads = 1;
  model.intermediate = 256;
  EXPECT_EQ(more(Kind::kCuda, model, 129), 512U * 256U * 2U) << "no more than all of a matrix";
}

TEST(Workspace, OnGpusHasRoomForWhatExpertsGive) {
  spec::ModelSpec model = kLarge;
  model.intermediate = 0;
  model.experts = {.count = 64, .active = 8, .intermediate = 512};
  const auto scratch = [&](Kind kind, spec::DType weights, std::int64_t tokens) {
    return workspace_bytes(kind, model, weights, tokens) - activation_bytes(model, weights, tokens);
  };
  const std::size_t slots = 2048U * 8U;
  EXPECT_GE(scratch(Kind::kCuda, kBf16, 2048), slots * (512 * 2 + 4096 * 4));
  EXPECT_EQ(scratch(Kind::kCuda, kBf16, 4096), scratch(Kind::kCuda, kBf16, 2048))
      << "they come one part after the other";
  EXPECT_LT(scratch(Kind::kCpu, kBf16, 2048), slots * 4096);
  model.formats.assign(spec::format_count(model.layers), spec::DType::kQ4K);
  const std::size_t alike = scratch(Kind::kCuda, spec::DType::kStored, 2048);
  model.formats[spec::format_index(spec::Matrix::kExpertsUp, 3)] = spec::DType::kQ6K;
  EXPECT_EQ(scratch(Kind::kCuda, spec::DType::kStored, 2048), alike + slots * 2 * 512 * 4);
  EXPECT_GT(graph_bytes(model), graph_bytes(kLarge));
}

TEST(Workspace, RecordingsAreOfModelsThatHaveAllLayers) {
  EXPECT_EQ(graph_bytes(kLarge), 32 * (14 * 32 + 10) * device::kRecordedBytes);
  spec::ModelSpec shard = kLarge;
  shard.shard = {.rank = 1, .ranks = 2};
  EXPECT_EQ(graph_bytes(shard), 32 * (16 * 32 + 12) * device::kRecordedBytes);
  spec::ModelSpec stage = kLarge;
  stage.stage = {.index = 1, .ends = {16, 32}};
  EXPECT_EQ(graph_bytes(stage), 0U);
}

}  // namespace
}  // namespace heddle::engine
