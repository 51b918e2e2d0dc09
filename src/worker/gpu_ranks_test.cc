// Ranks on emulated GPUs that exchange by kernels alone, each a process, as kernels of one process
// run one after another there. What comes out is held against what goes through the host.

#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/rng.h"
#include "collective/shared_collective.h"
#include "cuda_emulator/emulated_driver.h"
#include "device/cuda/cuda_device.h"
#include "engine/engine.h"
#include "engine/pipe.h"
#include "engine/test_host.h"
#include "ops/exchange.h"
#include "rpc/link.h"
#include "spec/shard.h"
#include "store/checkpoint.h"
#include "worker/peer_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

namespace heddle::worker {
namespace {

using namespace std::chrono_literals;

/// A rank with its GPU, in a process of its own.
class GpuRank {
 public:
  explicit GpuRank(const RankLinks& links)
      : device_(device::CudaDevice::create({.ordinal = links.gpu,
                                            .page_bytes = std::size_t{2} << 20U,
                                            .bytes = std::size_t{16} << 20U,
                                            .driver = emulator::EmulatedDriver::open().value()})
                    .value()),
        stream_(device_->create_stream().value()),
        peers_(PeerRanks::meet(*device_, links, 60s).value()),
        host_(links.area, links.rank) {}

  /// Some floats on the device.
  device::Buffer put(const std::vector<float>& values) {
    auto there = device_->allocate(device::Place::kDevice, values.size() * sizeof(float)).value();
    stream_->copy(there.data(), reinterpret_cast<const std::byte*>(values.data()), there.bytes());
    HEDDLE_CHECK(stream_->synchronize().has_value());
    return there;
  }
  std::vector<float> get(const device::Buffer& there) {
    std::vector<float> values(there.bytes() / sizeof(float));
    stream_->copy(reinterpret_cast<std::byte*>(values.data()), there.data(), there.bytes());
    HEDDLE_CHECK(stream_->synchronize().has_value());
    return values;
  }

  [[nodiscard]] ops::AllReduceArgs sum_of(const device::Buffer& data, std::int64_t rows) {
    const auto count = static_cast<std::int64_t>(data.bytes() / sizeof(float));
    return {.group = &host_,
            .data = ops::tensor_2d(data.data(), ops::DType::kF32, rows, count / rows),
            .peers = &peers_->area()};
  }

  std::unique_ptr<device::CudaDevice> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<PeerRanks> peers_;
  collective::SharedCollective host_;
  ops::OpContext context_{.stream = *stream_, .kernels = *ops::kernels_for(device::Kind::kCuda)};
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Numbers whose sums round, so that their order shows.
std::vector<float> numbers(Rng& rng, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(rng.below(1U << 24U)) * 0.00137F - 9000.0F);
  }
  return values;
}

/// Runs `work` as each rank of a group: rank 0 here, the others in processes of their own. Returns
/// whether those ended well.
bool as_ranks(std::int64_t ranks,
              const std::function<void(const RankLinks&, const emulator::EmulatedDriver&)>& work) {
  const auto area = collective::SharedArea::create(ranks).value();
  std::vector<RankLinks> all;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    all.push_back({.gpu = static_cast<int>(rank),
                   .rank = rank,
                   .sockets = std::vector<Descriptor>(static_cast<std::size_t>(ranks)),
                   .area = area});
  }
  for (std::size_t first = 0; first < all.size(); ++first) {
    for (std::size_t second = first + 1; second < all.size(); ++second) {
      auto sockets = rpc::packet_pair().value();
      all[first].sockets[second] = std::move(sockets.first);
      all[second].sockets[first] = std::move(sockets.second);
    }
  }
  // Blocks and threads of each rank run in an order of their own.
  const auto machine = [ranks](std::size_t rank) {
    return "memory=128MiB,granularity=65536,devices=" + std::to_string(ranks) +
           ",seed=" + std::to_string(1 + rank);
  };
  std::vector<pid_t> children;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const pid_t child = ::fork();
    HEDDLE_CHECK(child >= 0);
    if (child == 0) {
      const emulator::EmulatedDriver driver(machine(rank).c_str());
      work(all[rank], driver);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  {
    const emulator::EmulatedDriver driver(machine(0).c_str());
    work(all[0], driver);
  }
  bool well = true;
  for (const pid_t child : children) {
    int status = 0;
    HEDDLE_CHECK(::waitpid(child, &status, 0) == child);
    well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return well;
}

class GpuRanksTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(GpuRanksTest, SumsAreThoseOfTheHostToTheBit) {
  EXPECT_TRUE(
      as_ranks(GetParam(), [](const RankLinks& links, const emulator::EmulatedDriver& /*driver*/) {
        GpuRank rank(links);
        Rng rng(91 + static_cast<std::uint64_t>(links.rank));
        // Less than a quad; odd; a block's round and one more; several rounds; by parts.
        for (const std::int64_t count : {1, 7, 1024, 1028, 4100, 66000, 140000, 300001}) {
          std::vector<float> values = numbers(rng, count);
          const device::Buffer data = rank.put(values);
          ops::all_reduce(rank.context_, rank.sum_of(data, 1));
          const std::vector<float> sums = rank.get(data);
          HEDDLE_CHECK(rank.host_.all_reduce(values).has_value());
          EXPECT_TRUE(same(sums, values)) << count << " floats of rank " << links.rank;
        }
      }));
}

TEST_P(GpuRanksTest, ColumnsAreGatheredWhereverTheyAreCut) {
  EXPECT_TRUE(
      as_ranks(GetParam(), [](const RankLinks& links, const emulator::EmulatedDriver& /*driver*/) {
        GpuRank rank(links);
        const std::int64_t ranks = std::ssize(links.sockets);
        Rng rng(17 + static_cast<std::uint64_t>(links.rank));
        for (const std::int64_t rows : {1, 3, 70}) {
          std::vector<std::int64_t> ends;
          for (std::int64_t of = 0; of < ranks; ++of) {
            ends.push_back((of == 0 ? 0 : ends.back()) + 1 + of * 97);  // Nobody has as many.
          }
          std::vector<float> values = numbers(rng, rows * ends.back());
          const device::Buffer data = rank.put(values);
          ops::all_gather(rank.context_,
                          {.group = &rank.host_,
                           .data = ops::tensor_2d(data.data(), ops::DType::kF32, rows, ends.back()),
                           .ends = &ends,
                           .peers = &rank.peers_->area()});
          const std::vector<float> gathered = rank.get(data);
          HEDDLE_CHECK(rank.host_.all_gather(values, ends).has_value());
          EXPECT_TRUE(same(gathered, values)) << rows << " rows of rank " << links.rank;
        }
      }));
}

TEST_P(GpuRanksTest, AnExchangeIsRecordedAndReplayed) {
  EXPECT_TRUE(
      as_ranks(GetParam(), [](const RankLinks& links, const emulator::EmulatedDriver& /*driver*/) {
        GpuRank rank(links);
        Rng rng(5 + static_cast<std::uint64_t>(links.rank));
        std::vector<float> values = numbers(rng, 600);
        const device::Buffer data = rank.put(values);
        const std::vector<std::int64_t> ends = [&] {
          std::vector<std::int64_t> all;
          for (std::int64_t of = 1; of <= std::ssize(links.sockets); ++of) {
            all.push_back(of == std::ssize(links.sockets) ? 300 : of * 10);
          }
          return all;
        }();
        const auto exchange = [&] {
          ops::all_reduce(rank.context_, rank.sum_of(data, 2));
          ops::all_gather(rank.context_,
                          {.group = &rank.host_,
                           .data = ops::tensor_2d(data.data(), ops::DType::kF32, 2, 300),
                           .ends = &ends,
                           .peers = &rank.peers_->area()});
          ops::all_reduce(rank.context_, rank.sum_of(data, 2));
        };
        const auto on_host = [&] {
          HEDDLE_CHECK(rank.host_.all_reduce(values).has_value());
          HEDDLE_CHECK(rank.host_.all_gather(values, ends).has_value());
          HEDDLE_CHECK(rank.host_.all_reduce(values).has_value());
        };
        exchange();
        EXPECT_TRUE((on_host(), same(rank.get(data), values)));
        HEDDLE_CHECK(rank.stream_->begin_capture());
        exchange();
        const auto graph = rank.stream_->end_capture().value();
        for (int turn = 0; turn < 5; ++turn) {
          rank.stream_->replay(*graph);
          EXPECT_TRUE((on_host(), same(rank.get(data), values))) << turn;
        }
      }));
}

INSTANTIATE_TEST_SUITE_P(Groups, GpuRanksTest, testing::Values(2, 3, 4));

TEST(GpuRanksOfWhichOneIsGone, AnAbandonedGroupWaitsForNobody) {
  EXPECT_TRUE(as_ranks(2, [](const RankLinks& links, const emulator::EmulatedDriver& /*driver*/) {
    GpuRank rank(links);
    HEDDLE_CHECK(rank.host_.agree(1).has_value());
    if (links.rank == 1) {
      return;  // It never comes to the exchange, and abandons the group.
    }
    const device::Buffer data = rank.put(std::vector<float>(9000, 1.0F));
    ops::all_reduce(rank.context_, rank.sum_of(data, 9));
    EXPECT_TRUE(rank.stream_->synchronize()) << "the group's next agreement says it";
    EXPECT_EQ(rank.host_.agree(2).error().code, Code::kUnavailable);
  }));
}

/// What an engine says to a prompt, by greedy choice. A group's rank has `links` to the others.
std::vector<TokenId> generate(const spec::ModelSpec& spec,
                              const store::TensorSet& tensors,
                              const RankLinks& links) {
  constexpr ModelId kModel{7};
  constexpr engine::SequenceId kSequence{1};
  constexpr std::size_t kPage = std::size_t{64} << 10U;
  constexpr std::int64_t kAnswer = 12;
  engine::TestHost host(
      256,
      kPage,
      device::CudaDeviceOptions{.ordinal = links.gpu,
                                .page_bytes = kPage,
                                .bytes = 256 * kPage,
                                .driver = emulator::EmulatedDriver::open().value()});
  const engine::LoadedModel model = host.load(tensors, spec, spec::DType::kF32);
  const auto engine = engine::Engine::create(host.device(), host.pool(), {}).value();
  HEDDLE_CHECK(engine->add_model(kModel, spec, model.layout, model.window.base(), engine::kKvLease)
                   .has_value());
  std::unique_ptr<PeerRanks> peers;
  collective::SharedCollective group(links.area, links.rank);
  if (spec.shard.ranks > 1) {
    peers = PeerRanks::meet(host.device(), links, 60s).value();
    engine->set_group(kModel, &group, &peers->area());
    HEDDLE_CHECK(engine->pipes().set_share(kModel, host.pool().free_count()).has_value());
  }
  engine->set_image_ready(kModel, model.layout.bytes);
  HEDDLE_CHECK(engine
                   ->add_sequence(
                       {.id = kSequence,
                        .model = kModel,
                        .tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5},
                        .prompt_tokens = 11,
                        .params = {.temperature = 0.0F, .max_tokens = kAnswer, .ignore_eos = true}})
                   .has_value());
  std::vector<TokenId> told;
  for (std::int64_t tokens = 11; std::ssize(told) < kAnswer; tokens = 1) {
    const auto outcome = engine->run(
        {.batches = {{.model = kModel, .slices = {{.sequence = kSequence, .tokens = tokens}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    told.push_back(*outcome->results[0].token);
  }
  engine->remove_sequence(kSequence);
  engine->remove_model(kModel);
  return told;
}

TEST(GpuRanksOfAModel, ShardsSayWhatTheWholeModelSaysAndReplayTheirSteps) {
  EXPECT_TRUE(as_ranks(2, [](const RankLinks& links, const emulator::EmulatedDriver& driver) {
    const auto checkpoint =
        store::Checkpoint::open(engine::golden_directory() / "llama-gqa-sharded").value();
    const spec::ModelSpec& whole = checkpoint.config.model;
    const std::vector<TokenId> expected =
        generate(whole,
                 checkpoint.tensors,
                 {.gpu = links.gpu, .area = collective::SharedArea::create(1).value()});
    const unsigned long before = driver.calls("cuGraphLaunch");
    EXPECT_EQ(
        generate(
            spec::shard_of(whole, {.rank = links.rank, .ranks = 2}), checkpoint.tensors, links),
        expected);
    // Of twelve steps the first reads the prompt, one is enqueued and one is recorded.
    EXPECT_GE(driver.calls("cuGraphLaunch") - before, 8U);
  }));
}

}  // namespace
}  // namespace heddle::worker
