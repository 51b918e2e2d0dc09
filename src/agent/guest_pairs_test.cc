#include "agent/guest_pairs.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/descriptor_limit.h"
#include "base/test_places.h"

#include <sys/mman.h>

namespace heddle::agent {
namespace {

constexpr std::size_t kPairPage = std::size_t{64} << 10U;
constexpr DeviceId kHotGpu{0};
constexpr DeviceId kHostGpu{1};
constexpr ModelId kPairModel{7};

/// What was sent, in order: the device and the message.
struct Sent {
  DeviceId device{};
  rpc::ToWorker message{};
  std::size_t descriptors = 0;
};

struct GuestPairsTest : testing::Test {
  GuestPairs pairs{
      {.page_bytes = kPairPage,
       .model = [this](ModelId) -> const HostModel& { return model; },
       .device = [this](DeviceId id) -> const DeviceSetup& { return id == kHostGpu ? host : hot; },
       .send =
           [this](DeviceId device,
                  WorkerEpoch,
                  const rpc::ToWorker& message,
                  const std::vector<rpc::Descriptor>& descriptors) {
             sent.push_back({device, message, descriptors.size()});
           },
       .hear = [this](core::AgentEvent event) { heard.push_back(std::move(event)); }}};

  static core::GuestsShared shared(std::size_t count) {
    core::GuestsShared said{.model = kPairModel};
    for (std::uint64_t page = 0; page < count; ++page) {
      said.pages.emplace_back(page);
    }
    return said;
  }
  [[nodiscard]] bool hear(const core::WorkerReport& report, std::size_t count) {
    std::vector<rpc::Descriptor> files;
    for (std::size_t i = 0; i < count; ++i) {
      files.emplace_back(::memfd_create("page", MFD_CLOEXEC));
    }
    return pairs.heard(kHostGpu, report, std::move(files));
  }

  HostModel model = open_host_model("tests/golden/llama-gqa-sharded",
                                    places::kSources,
                                    spec::DType::kF32,
                                    {.page_bytes = kPairPage, .max_batch_tokens = 64})
                        .value();
  DeviceSetup hot{.id = kHotGpu, .name = "gpu0", .gpu = 0, .pages = 32};
  DeviceSetup host{.id = kHostGpu, .name = "gpu1", .gpu = 1, .pages = 48};
  std::vector<Sent> sent{};
  std::vector<core::AgentEvent> heard{};
};

TEST_F(GuestPairsTest, TheMemoryOfAGpuGoesByTheAgentToTheHotWorker) {
  const std::vector<PageId> pages = shared(3).pages;
  pairs.share({.host = kHostGpu, .model = kPairModel, .pages = pages});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].device, kHostGpu);
  EXPECT_EQ(std::get<rpc::ShareGuests>(sent[0].message).pages, pages);
  ASSERT_TRUE(hear(shared(3), 3));
  pairs.connect({.host = kHostGpu, .hot = kHotGpu, .model = kPairModel, .pages = pages});
  pairs.pass({.host = kHostGpu, .hot = kHotGpu, .model = kPairModel, .pages = pages});
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(std::get<rpc::HostGuests>(sent[1].message).pages, pages);
  EXPECT_EQ(sent[1].descriptors, 1U) << "the area";
  EXPECT_EQ(sent[2].device, kHotGpu);
  EXPECT_TRUE(std::holds_alternative<rpc::MeetHost>(sent[2].message));
  EXPECT_EQ(sent[3].device, kHotGpu);
  EXPECT_EQ(std::get<rpc::GuestMemory>(sent[3].message).device_pages, 48) << "of the lender";
  EXPECT_EQ(sent[3].descriptors, 3U);
}

TEST_F(GuestPairsTest, WhatIsLentNoLongerIsLetGoOfBeforeTheHostHears) {
  pairs.share({.host = kHostGpu, .model = kPairModel, .pages = shared(2).pages});
  const std::size_t before = open_descriptors();
  ASSERT_TRUE(hear(shared(2), 2));
  EXPECT_EQ(open_descriptors(), before + 2);
  pairs.lease({.host = kHostGpu, .model = kPairModel});
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(std::get<rpc::HostGuests>(sent.back().message).pages.empty());
}

TEST_F(GuestPairsTest, TooManyPagesAreMissedAsIfTheHostHadFailed) {
  const core::GuestsShared all = shared(descriptor_limit() / 4 + 1);
  pairs.share({.host = kHostGpu, .model = kPairModel, .pages = all.pages});
  EXPECT_TRUE(sent.empty());
  ASSERT_EQ(heard.size(), 1U);
  const auto& said = std::get<core::WorkerSaid>(heard[0]);
  EXPECT_EQ(said.device, kHostGpu);
  EXPECT_EQ(std::get<core::GuestsShared>(said.report).pages, all.pages);
  EXPECT_TRUE(std::get<core::GuestsShared>(said.report).failure);
}

TEST_F(GuestPairsTest, AWorkerThatSharesWithoutDescriptorsBreaksTheRules) {
  pairs.share({.host = kHostGpu, .model = kPairModel, .pages = shared(2).pages});
  EXPECT_FALSE(hear(shared(2), 1));
  core::GuestsShared failed = shared(2);
  failed.failure = {Code::kResourceExhausted, "no memory"};
  EXPECT_TRUE(hear(failed, 0));
  EXPECT_TRUE(hear(core::ImageCopied{.model = kPairModel}, 0)) << "no matter of its";
}

}  // namespace
}  // namespace heddle::agent
