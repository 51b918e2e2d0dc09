#include "agent/guest_area.h"

#include <string>

#include <gtest/gtest.h>

#include "base/test_places.h"
#include "ops/context.h"

namespace heddle::agent {
namespace {

constexpr std::size_t kKvPage = std::size_t{64} << 10U;

HostModel hot_model(std::string_view name, spec::KvType kv = spec::KvType::kComputed) {
  return open_host_model("tests/golden/" + std::string(name),
                         places::kSources,
                         spec::DType::kF32,
                         {.page_bytes = kKvPage, .max_batch_tokens = 64},
                         kv)
      .value();
}

TEST(GuestArea, SaysWhereTheKvOfEachLayerIs) {
  const HostModel hot = hot_model("qwen3-window");
  const auto area = make_guest_area(hot, kKvPage, device::Kind::kCpu);
  ASSERT_TRUE(area) << area.error().message;
  const weave::Geometry& geometry = (*area)->geometry();
  const std::string kernels = ops::kernels_name(device::Kind::kCpu).value();
  EXPECT_TRUE(weave::check_geometry(geometry, kernels, kKvPage));
  EXPECT_EQ(geometry.layers, hot.spec.layers);
  EXPECT_EQ(geometry.heads, hot.spec.heads);
  EXPECT_EQ(geometry.groups, std::ssize(hot.footprint.kv));
  EXPECT_NE(geometry.places[0].group, geometry.places[1].group) << "one has a window";
  EXPECT_GE(geometry.blocks * geometry.places[0].block_tokens, hot.spec.max_position);
}

TEST(GuestArea, HasTheHeadsOfLayersWithoutAWindow) {
  HostModel hot = hot_model("gemma4");
  const auto area = make_guest_area(hot, kKvPage, device::Kind::kCpu);
  ASSERT_TRUE(area) << area.error().message;
  const weave::Geometry& geometry = (*area)->geometry();
  const std::string kernels = ops::kernels_name(device::Kind::kCpu).value();
  EXPECT_TRUE(weave::check_geometry(geometry, kernels, kKvPage));
  EXPECT_EQ(geometry.kv_heads, hot.spec.global_kv_heads);
  EXPECT_EQ(geometry.head_dim, hot.spec.global_head_dim);
  hot.spec.window.assign(hot.spec.window.size(), 0);
  const auto mixed = make_guest_area(hot, kKvPage, device::Kind::kCpu);
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().message,
            "guests of a model whose layers without a window have heads of two sizes");
}

TEST(GuestArea, SaysThatKvIsCodes) {
  for (const auto& [kv, dtype] : {std::pair(spec::KvType::kI8, spec::DType::kI8),
                                  std::pair(spec::KvType::kF8, spec::DType::kF8)}) {
    const HostModel hot = hot_model("qwen3-window", kv);
    const auto area = make_guest_area(hot, kKvPage, device::Kind::kCpu);
    ASSERT_TRUE(area) << area.error().message;
    const weave::Geometry& geometry = (*area)->geometry();
    const std::string kernels = ops::kernels_name(device::Kind::kCpu).value();
    EXPECT_TRUE(weave::check_geometry(geometry, kernels, kKvPage));
    EXPECT_EQ(weave::kv_dtype(geometry), dtype);
    const weave::LayerPlace& place = geometry.places[0];
    const std::int64_t bytes = hot.spec.kv_heads * place.block_tokens * (hot.spec.head_dim + 2);
    EXPECT_EQ(place.value_offset - place.key_offset, (bytes + 15) / 16 * 16);
  }
}

TEST(GuestArea, NamesTheKernelsOfTheTwoDevices) {
  const auto area = make_guest_area(hot_model("qwen3-window"), kKvPage, device::Kind::kCuda);
  ASSERT_TRUE(area) << area.error().message;
  const std::string kernels = ops::kernels_name(device::Kind::kCuda).value();
  EXPECT_TRUE(weave::check_geometry((*area)->geometry(), kernels, kKvPage));
  EXPECT_FALSE(weave::check_geometry(
      (*area)->geometry(), ops::kernels_name(device::Kind::kCpu).value(), kKvPage));
}

TEST(GuestArea, IsRefusedWhereAPageIsTooSmall) {
  const auto area = make_guest_area(hot_model("qwen3-window"), 64, device::Kind::kCpu);
  ASSERT_FALSE(area);
  EXPECT_EQ(area.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::agent
