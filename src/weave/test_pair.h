#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/context.h"
#include "weave/guest_client.h"
#include "weave/guest_server.h"

/// For tests and benchmarks: a small hot model with guests on the pages of an arena.
namespace heddle::weave::test {

inline constexpr std::int64_t kPageBytes = 4096;
inline constexpr std::int64_t kHeads = 4;
inline constexpr std::int64_t kKvHeads = 2;
inline constexpr std::int64_t kHeadDim = 16;
inline constexpr std::int64_t kBlockTokens = 8;
inline constexpr std::int64_t kLayers = 3;
inline constexpr std::int64_t kPages = 64;

/// The name of the kernels that run here.
inline std::string_view kernels() {
  static const std::string name = ops::kernels_name(device::Kind::kCpu).value();
  return name;
}

/// Layer 1 is in a group of its own, as one with a window would be.
inline Geometry geometry() {
  Geometry g{.page_bytes = kPageBytes,
             .kv = static_cast<std::int64_t>(spec::DType::kF32),
             .heads = kHeads,
             .kv_heads = kKvHeads,
             .head_dim = kHeadDim,
             .border = ops::attention_border(),
             .layers = kLayers,
             .groups = 2,
             .rows = 4,
             .blocks = 64,
             .scale = 0.25F};
  std::copy_n(kernels().begin(), std::min<std::size_t>(kernels().size(), 16), g.kernels.begin());
  const std::int64_t side = kKvHeads * kBlockTokens * kHeadDim * 4;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    g.places[layer] = {.group = layer == 1 ? 1 : 0,
                       .key_offset = 0,
                       .value_offset = side,
                       .block_bytes = 2 * side,
                       .block_tokens = kBlockTokens};
  }
  return g;
}

/// An arena of random keys and values, and both sides of a pair over it.
struct Pair {
  explicit Pair(GuestClient::Options options = {.look = Duration{},
                                                .patience = std::chrono::seconds(10)}) {
    Rng rng(20241123);
    for (float& value : arena) {
      value = static_cast<float>(rng.below(2000)) * 1e-3F - 1.0F;
    }
    for (float& value : query) {
      value = static_cast<float>(rng.below(2000)) * 1e-3F - 1.0F;
    }
    area = JobArea::create(geometry()).value();
    client = std::make_unique<GuestClient>(area, options);
    server = GuestServer::create(JobArea::attach(area->fd()).value(),
                                 reinterpret_cast<const std::byte*>(arena.data()),
                                 kPageBytes,
                                 kernels())
                 .value();
    for (std::uint64_t page = 8; page < kPages; ++page) {
      lent.emplace_back(page);
    }
    server->lend(lent);
  }

  /// Sequences with one and two borders' positions away, on lent pages.
  static std::vector<ops::GuestSequence> sequences() {
    std::vector<ops::GuestSequence> made;
    std::int32_t block =
        8 * (kPageBytes / static_cast<std::int32_t>(geometry().places[0].block_bytes));
    for (std::int32_t times = 1; times <= 2; ++times) {
      ops::GuestSequence sequence{.border =
                                      times * static_cast<std::int32_t>(ops::attention_border())};
      sequence.blocks.resize(2);
      for (std::int32_t i = 0; i < sequence.border / kBlockTokens; ++i) {
        sequence.blocks[0].push_back(block++);
      }
      made.push_back(sequence);
    }
    return made;
  }

  ops::GuestRows rows(std::int64_t layer) {
    return {.layer = layer,
            .rows = 2,
            .query = query.data(),
            .query_stride = kHeads * kHeadDim,
            .state = state.data(),
            .state_stride = kHeads * (kHeadDim + 2)};
  }

  std::vector<float> arena = std::vector<float>(kPages * kPageBytes / 4);
  std::vector<float> query = std::vector<float>(2 * kHeads * kHeadDim);
  std::vector<float> state = std::vector<float>(2 * kHeads * (kHeadDim + 2));
  std::vector<PageId> lent{};
  std::shared_ptr<JobArea> area{};
  std::unique_ptr<GuestClient> client{};
  std::unique_ptr<GuestServer> server{};
};

}  // namespace heddle::weave::test
