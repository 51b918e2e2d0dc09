#include "worker/peer_ranks.h"

#include <chrono>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cuda/cuda_device.h"
#include "rpc/link.h"

namespace heddle::worker {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<device::CudaDevice> gpu(int ordinal) {
  return device::CudaDevice::create({.ordinal = ordinal,
                                     .page_bytes = std::size_t{2} << 20U,
                                     .bytes = std::size_t{16} << 20U,
                                     .driver = emulator::EmulatedDriver::open().value()})
      .value();
}

/// Two ranks of a group, each with its GPU, as threads.
struct TwoRanks {
  explicit TwoRanks(const char* machine) : driver(machine) {
    auto sockets = rpc::packet_pair().value();
    for (int rank = 0; rank < 2; ++rank) {
      RankLinks own{.gpu = rank,
                    .rank = rank,
                    .sockets = std::vector<Descriptor>(2),
                    .area = collective::SharedArea::attach(area->fd()).value()};
      own.sockets[static_cast<std::size_t>(1 - rank)] =
          std::move(rank == 0 ? sockets.first : sockets.second);
      links.push_back(std::move(own));
      devices.push_back(gpu(rank));
    }
  }

  using Met = Result<std::unique_ptr<PeerRanks>>;
  std::pair<Met, Met> meet() {
    Met other = Error{};
    std::thread thread([&] { other = PeerRanks::meet(*devices[1], links[1], 10s); });
    Met own = PeerRanks::meet(*devices[0], links[0], 10s);
    thread.join();
    return {std::move(own), std::move(other)};
  }

  emulator::EmulatedDriver driver;
  std::shared_ptr<collective::SharedArea> area = collective::SharedArea::create(2).value();
  std::vector<std::unique_ptr<device::CudaDevice>> devices{};
  std::vector<RankLinks> links{};
};

TEST(PeerRanksTest, EachHasTheMemoryOfAll) {
  TwoRanks ranks("devices=2,memory=64MiB");
  const auto [first, second] = ranks.meet();
  ASSERT_TRUE(first && second);
  for (const auto* area : {&(*first)->area(), &(*second)->area()}) {
    EXPECT_EQ(area->ranks, 2);
    EXPECT_NE(area->memory[0], nullptr);
    EXPECT_NE(area->memory[1], nullptr);
    EXPECT_EQ(area->memory[2], nullptr);
    EXPECT_EQ(*area->abandoned & 1U, 0U);
  }
  // What one writes to the other's memory is there.
  auto stream = ranks.devices[0]->create_stream().value();
  auto said = ranks.devices[0]->allocate(device::Place::kHost, 64).value();
  said.data()[0] = std::byte{42};
  stream->copy((*first)->area().memory[1] + 100, said.data(), 1);
  ASSERT_TRUE(stream->synchronize());
  auto other = ranks.devices[1]->create_stream().value();
  auto heard = ranks.devices[1]->allocate(device::Place::kHost, 64).value();
  other->copy(heard.data(), (*second)->area().memory[1] + 99, 2);
  ASSERT_TRUE(other->synchronize());
  EXPECT_EQ(heard.data()[0], std::byte{0}) << "it begins as zeros";
  EXPECT_EQ(heard.data()[1], std::byte{42});
  ranks.area->abandon();
  EXPECT_EQ(*(*first)->area().abandoned & 1U, 1U);
}

TEST(PeerRanksTest, GpusWithoutALinkDoNotMeet) {
  TwoRanks ranks("devices=2,memory=64MiB,peers=2");
  const auto [first, second] = ranks.meet();
  ASSERT_FALSE(first || second);
  EXPECT_EQ(first.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(first.error().message, "GPU 0 has no link to GPU 1 of rank 1");
}

TEST(PeerRanksTest, ARankWithoutMemorySaysSo) {
  TwoRanks ranks("devices=2,memory=64MiB");
  // All of it is taken but for less than what a rank shows to the others.
  auto taken = ranks.devices[1]->allocate(device::Place::kDevice, std::size_t{47} << 20U);
  ASSERT_TRUE(taken);
  const auto [first, second] = ranks.meet();
  ASSERT_FALSE(first || second);
  EXPECT_EQ(first.error().message, "rank 1 has no memory to share");
  EXPECT_EQ(second.error().code, Code::kResourceExhausted) << second.error().message;
}

TEST(PeerRanksTest, ARankThatIsGoneIsNotWaitedFor) {
  TwoRanks ranks("devices=2,memory=64MiB");
  ranks.links[1].sockets.clear();
  const auto met = PeerRanks::meet(*ranks.devices[0], ranks.links[0], 1h);
  ASSERT_FALSE(met);
  EXPECT_EQ(met.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::worker
