#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cuda_emulator/emulated_driver.h"
#include "device/cuda/cuda_device.h"
#include "ops/guest_attention.h"
#include "weave/stream_client.h"
#include "weave/stream_server.h"
#include "weave/test_pair.h"

/// For tests: the small hot model of test_pair.h on an emulated GPU, with guests on another.
namespace heddle::weave::test {

inline constexpr std::int64_t kGpuPageBytes = std::int64_t{64} << 10U;
inline constexpr std::int64_t kGpuPages = 8;
inline constexpr std::int32_t kBorder = 48;

/// Both sides, a hot stream and what it posts: two sequences, with kBorder and twice as many
/// positions away.
class StreamPair {
 public:
  explicit StreamPair(Duration patience = std::chrono::seconds(20))
      : server_place_{.device = *host_,
                      .kernels = *kernels_,
                      .kernels_name = name_,
                      .pages = lent_.buffer.data(),
                      .page_bytes = kGpuPageBytes} {
    Rng rng(20241123);
    const auto bytes = static_cast<std::size_t>(kGpuPages * kGpuPageBytes);
    const auto staged = hot_->allocate(device::Place::kHost, bytes).value();
    numbers(staged.data(), kGpuPages * kGpuPageBytes / 4, rng);
    numbers(floats(), 2 * kHeads * kHeadDim, rng);
    stream_->copy(attached_.data(), staged.data(), bytes);
    HEDDLE_CHECK(stream_->synchronize().has_value());
    client = StreamClient::create(area, *hot_, {.patience = patience}).value();
    server = StreamServer::create(JobArea::attach(area->fd()).value(), server_place_).value();
    for (std::uint64_t page = 0; page < kGpuPages; ++page) {
      lent.emplace_back(page);
    }
    server->lend(lent);
    auto* const ints = reinterpret_cast<std::int32_t*>(memory_.data() + 65536);
    const std::vector<std::int32_t> step{0, 1, 2, 200, 200, kBorder, 2 * kBorder};
    std::ranges::copy(step, ints);
    for (std::int32_t i = 0; i < 64; ++i) {
      ints[16 + i] = i % 32;
    }
  }
  ~StreamPair() {
    client.reset();
    server.reset();
  }
  StreamPair(const StreamPair&) = delete;
  StreamPair& operator=(const StreamPair&) = delete;

  /// Block i of either sequence is block i of the lent memory.
  static std::vector<ops::GuestSequence> sequences() {
    std::vector<ops::GuestSequence> made(2);
    for (std::size_t s = 0; s < 2; ++s) {
      made[s].border = static_cast<std::int32_t>(s + 1) * kBorder;
      made[s].blocks.resize(2);
      for (std::int32_t i = 0; i * kBlockTokens < made[s].border; ++i) {
        made[s].blocks[0].push_back(i);
      }
    }
    return made;
  }

  /// Layer by layer, as a hot engine would; what is left of each. Layer 1 stays at home.
  std::vector<float> run_layers(ops::AttentionHost* host) {
    std::vector<float> left;
    const std::int64_t count = 2 * kHeads * (kHeadDim + 2);
    for (const std::int64_t layer : {0, 2}) {
      const ops::GuestAttentionArgs args = arguments(host, layer);
      ops::post_guest_attention(context_, args);
      ops::await_guest_attention(context_, args);
      stream_->copy(memory_.data() + 32768 + layer * 4096,
                    memory_.data() + 16384,
                    static_cast<std::size_t>(count) * 4);
    }
    HEDDLE_CHECK(stream_->synchronize().has_value());
    for (const std::int64_t layer : {0, 2}) {
      const float* const at = floats() + 8192 + layer * 1024;
      left.insert(left.end(), at, at + count);
    }
    return left;
  }
  /// A whole step.
  std::vector<float> step() {
    client->begin_step(sequences());
    return run_layers(client.get());
  }

  static Geometry geometry_of(std::string_view kernels) {
    Geometry g = geometry();
    g.kernels = {};
    std::copy_n(kernels.begin(), std::min<std::size_t>(kernels.size(), 16), g.kernels.begin());
    g.page_bytes = kGpuPageBytes;
    g.border = kBorder;
    return g;
  }

 private:
  static void numbers(void* at, std::int64_t count, Rng& rng) {
    for (std::int64_t i = 0; i < count; ++i) {
      static_cast<float*>(at)[i] = static_cast<float>(rng.below(2000)) * 1e-3F - 1.0F;
    }
  }
  static std::unique_ptr<device::CudaDevice> gpu(int ordinal) {
    return device::CudaDevice::create({.ordinal = ordinal,
                                       .bytes = std::size_t{2} << 20U,
                                       .driver = emulator::EmulatedDriver::open().value()})
        .value();
  }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(memory_.data()); }

  ops::GuestAttentionArgs arguments(ops::AttentionHost* host, std::int64_t layer) {
    const auto* const ints = reinterpret_cast<const std::int32_t*>(memory_.data() + 65536);
    const auto heads = [](float* data, std::int64_t width) {
      return ops::heads_of(ops::matrix_of(data, 2, kHeads * width), 0, kHeads, width);
    };
    const LayerPlace& place = area->geometry().places[static_cast<std::size_t>(layer)];
    return {.host = host,
            .layer = layer,
            .attention = {.rows = {.begin = ops::vector_of(ints, 3),
                                   .first_position = ops::vector_of(ints + 3, 2)},
                          .query = heads(floats(), kHeadDim),
                          .kv = {.base = attached_.data(),
                                 .block_bytes = place.block_bytes,
                                 .block_tokens = place.block_tokens,
                                 .key_offset = place.key_offset,
                                 .value_offset = place.value_offset,
                                 .kv_heads = kKvHeads,
                                 .head_dim = kHeadDim,
                                 .dtype = spec::DType::kF32,
                                 .table = ops::matrix_of(ints + 16, 2, 32)},
                          .scale = area->geometry().scale,
                          .parts = {.end = ops::vector_of(ints + 5, 2),
                                    .left = heads(floats() + 4096, kHeadDim + 2)}}};
  }

  emulator::EmulatedDriver driver_{"devices=2,memory=64MiB,granularity=65536"};
  std::string name_ = ops::kernels_name(device::Kind::kCuda).value();
  const ops::KernelTable* kernels_ = ops::kernels_for(device::Kind::kCuda);
  std::unique_ptr<device::CudaDevice> hot_ = gpu(0);
  std::unique_ptr<device::CudaDevice> host_ = gpu(1);
  device::SharedBuffer lent_ =
      host_->allocate_shared(static_cast<std::size_t>(kGpuPages * kGpuPageBytes)).value();
  device::Buffer attached_ = hot_->attach_shared(lent_.descriptor, lent_.buffer.bytes()).value();
  /// Of the hot side, pinned: queries, states, states of layers, and the batch.
  device::Buffer memory_ = hot_->allocate(device::Place::kHost, 131072).value();
  std::unique_ptr<device::Stream> stream_ = hot_->create_stream().value();
  ops::OpContext context_{.stream = *stream_, .kernels = *kernels_};
  StreamServer::Place server_place_;

 public:
  std::vector<PageId> lent{};
  std::shared_ptr<JobArea> area = JobArea::create(geometry_of(name_)).value();
  std::unique_ptr<StreamClient> client{};
  std::unique_ptr<StreamServer> server{};
};

}  // namespace heddle::weave::test
