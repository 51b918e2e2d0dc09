#include <vector>

#include <gtest/gtest.h>

#include "core/agent_core.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kHotModel{1};
constexpr ModelId kColdModel{2};
constexpr ModelId kThirdModel{3};
constexpr DeviceId kHot{0};
constexpr DeviceId kHost{1};
constexpr WorkerEpoch kHotLife{1};
constexpr WorkerEpoch kHostLife{2};

/// Two devices of 12 pages beside 10 of the host; the second is to lend to a model on the first.
class GuestsOfAnAgent : public testing::Test {
 protected:
  GuestsOfAnAgent() {
    AgentModels models;
    for (const ModelId id : {kHotModel, kColdModel, kThirdModel}) {
      models.models.push_back({.id = id, .image_bytes = 600, .footprint = {.image_pages = 6}});
    }
    tell(models);
    tell(StartAgent{});
    tell(WorkerConnected{.device = kHot, .epoch = kHotLife});
    tell(WorkerConnected{.device = kHost, .epoch = kHostLife});
  }

  std::vector<AgentCommand> tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    return commands;
  }
  template <class T>
  std::vector<AgentCommand> said(DeviceId device, WorkerEpoch epoch, T report) {
    return tell(WorkerSaid{.device = device, .epoch = epoch, .report = report});
  }
  static std::vector<PageId> host_pages(std::uint64_t count, std::uint64_t first = 22) {
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < count; ++i) {
      pages.emplace_back(first + i);
    }
    return pages;
  }
  /// The host lends so many pages.
  std::vector<AgentCommand> lend(std::int64_t count, std::uint64_t first = 22) {
    const auto asked = tell(order(count));
    EXPECT_NE(find<LendPages>(asked), nullptr);
    return said(kHost,
                kHostLife,
                PagesReturned{.model = kHotModel,
                              .pages = host_pages(static_cast<std::uint64_t>(count), first)});
  }
  static Weave order(std::int64_t count) {
    return {.host = kHost,
            .basis = {.epoch = kHostLife},
            .hot = kHot,
            .hot_epoch = kHotLife,
            .model = kHotModel,
            .pages = count};
  }

  Instant now{1s};
  AgentCore core{AgentOptions{.host_pages = 10,
                              .devices = {{.id = kHot, .pages = 12}, {.id = kHost, .pages = 12}}}};
};

TEST_F(GuestsOfAnAgent, PagesGoFromTheHostToTheHotWorker) {
  const auto lent = lend(4);
  const auto* connect = find<ConnectGuests>(lent);
  ASSERT_NE(connect, nullptr);
  EXPECT_EQ(connect->pages, host_pages(4));
  ASSERT_NE(find<LendGuests>(lent), nullptr);
  EXPECT_EQ(find<LendGuests>(lent)->pages, host_pages(4));
  ASSERT_NE(find<GuestState>(lent), nullptr);
  EXPECT_EQ(find<GuestState>(lent)->pages, 4);
  const auto more = lend(2, 26);
  EXPECT_EQ(find<ConnectGuests>(more)->pages, host_pages(6)) << "all that the model has there";
  EXPECT_EQ(find<LendGuests>(more)->pages, host_pages(2, 26));
}

TEST_F(GuestsOfAnAgent, WhatIsRecalledGoesBackToTheHost) {
  lend(4);
  const auto recalled = tell(Unweave{.host = kHost, .model = kHotModel, .pages = 3});
  ASSERT_NE(find<RecallGuests>(recalled), nullptr);
  EXPECT_EQ(find<RecallGuests>(recalled)->count, 3);
  const auto loads =
      tell(LoadOn{.device = kHost, .model = kColdModel, .basis = {.epoch = kHostLife}});
  EXPECT_EQ(find<LoadModel>(loads), nullptr) << "it waits for the pages";
  const auto back =
      said(kHot, kHotLife, GuestsReturned{.model = kHotModel, .pages = host_pages(3)});
  ASSERT_NE(find<LeaseGuests>(back), nullptr);
  EXPECT_EQ(find<LeaseGuests>(back)->pages, host_pages(1, 25));
  ASSERT_NE(find<GivePages>(back), nullptr);
  EXPECT_EQ(find<GivePages>(back)->pages, host_pages(3));
  EXPECT_NE(find<LoadModel>(back), nullptr);
  EXPECT_EQ(find<GuestState>(back)->pages, 1);
}

TEST_F(GuestsOfAnAgent, WithTheLastPageThePairEnds) {
  lend(4);
  const auto back =
      said(kHot, kHotLife, GuestsReturned{.model = kHotModel, .pages = host_pages(4)});
  EXPECT_TRUE(find<LeaseGuests>(back)->pages.empty());
  EXPECT_NE(find<DisconnectGuests>(back), nullptr);
  EXPECT_EQ(find<GuestState>(back)->pages, 0);
}

TEST_F(GuestsOfAnAgent, TheyOutliveTheHostsWorker) {
  lend(4);
  const auto died = tell(WorkerExited{.device = kHost, .epoch = kHostLife});
  EXPECT_NE(find<DisconnectGuests>(died), nullptr);
  EXPECT_EQ(find<GuestState>(died), nullptr);
  now = find<WakeAt>(died)->at;
  const auto spawned = tell(Tick{});
  ASSERT_NE(find<SpawnWorker>(spawned), nullptr);
  EXPECT_EQ(find<SpawnWorker>(spawned)->pages.size(), 8U) << "without those that are lent";
  const auto up = tell(WorkerConnected{.device = kHost, .epoch = WorkerEpoch(3)});
  ASSERT_NE(find<ConnectGuests>(up), nullptr);
  EXPECT_EQ(find<ConnectGuests>(up)->pages, host_pages(4));
  EXPECT_EQ(find<ConnectGuests>(up)->host_epoch, WorkerEpoch(3));
}

TEST_F(GuestsOfAnAgent, TheyGoHomeWhenTheHotWorkerDies) {
  lend(4);
  tell(Unweave{.host = kHost, .model = kHotModel, .pages = 2});
  const auto died = tell(WorkerExited{.device = kHot, .epoch = kHotLife});
  EXPECT_EQ(find<GivePages>(died)->pages, host_pages(4));
  EXPECT_TRUE(find<LeaseGuests>(died)->pages.empty());
  EXPECT_EQ(find<GuestState>(died)->pages, 0);
  EXPECT_EQ(find<DisconnectGuests>(died), nullptr) << "nobody is left to tell";
}

TEST_F(GuestsOfAnAgent, TheyGoHomeWhenBothDie) {
  lend(4);
  tell(WorkerExited{.device = kHost, .epoch = kHostLife});
  const auto died = tell(WorkerExited{.device = kHot, .epoch = kHotLife});
  EXPECT_EQ(find<GivePages>(died), nullptr);
  now += 10s;
  const auto spawned = tell(Tick{});
  std::size_t pages = 0;
  for (const AgentCommand& command : spawned) {
    const auto* spawn = std::get_if<SpawnWorker>(&command);
    pages += spawn == nullptr ? 0 : spawn->pages.size();
  }
  EXPECT_EQ(pages, 24U);
}

TEST_F(GuestsOfAnAgent, ALoanThatComesTooLateGoesStraightBack) {
  tell(order(4));
  tell(WorkerExited{.device = kHot, .epoch = kHotLife});
  const auto lent =
      said(kHost, kHostLife, PagesReturned{.model = kHotModel, .pages = host_pages(4)});
  EXPECT_EQ(find<ConnectGuests>(lent), nullptr);
  EXPECT_EQ(find<GivePages>(lent)->pages, host_pages(4));
}

TEST_F(GuestsOfAnAgent, WhatCannotBeLentIsRefused) {
  tell(order(4));
  const auto refused =
      said(kHost,
           kHostLife,
           LoadRefused{.model = kHotModel, .reason = {Code::kResourceExhausted, "no room"}});
  ASSERT_NE(find<GuestState>(refused), nullptr);
  EXPECT_TRUE(find<GuestState>(refused)->refused);
  Weave late = order(4);
  late.hot_epoch = WorkerEpoch(9);
  EXPECT_TRUE(find<GuestState>(tell(late))->refused) << "of a life that there is not";
  tell(order(4));
  const auto died = tell(WorkerExited{.device = kHost, .epoch = kHostLife});
  EXPECT_TRUE(find<GuestState>(died)->refused);
}

TEST_F(GuestsOfAnAgent, AnOrderThatWaitsOutlivesTheLoanBeforeIt) {
  lend(4);
  // A load that waits for room in the host cache holds the next order up.
  tell(LoadOn{.device = kHot, .model = kThirdModel, .basis = {.epoch = kHotLife}});
  tell(LoadOn{.device = kHost, .model = kColdModel, .basis = {.epoch = kHostLife}});
  EXPECT_EQ(find<LendPages>(tell(order(2))), nullptr);
  said(kHot, kHotLife, GuestsReturned{.model = kHotModel, .pages = host_pages(4)});
  said(kHot, kHotLife, PagesReturned{.model = kThirdModel, .pages = host_pages(6, 10)});
  const auto room = tell(ReadEnded{.model = kThirdModel});
  ASSERT_NE(find<LendPages>(room), nullptr);
  const auto lent =
      said(kHost, kHostLife, PagesReturned{.model = kHotModel, .pages = host_pages(2)});
  EXPECT_EQ(find<GrantLoan>(lent), nullptr) << "it is no engine's";
  ASSERT_NE(find<LendGuests>(lent), nullptr);
  EXPECT_EQ(find<LendGuests>(lent)->pages, host_pages(2));
}

TEST_F(GuestsOfAnAgent, ReturningWhatWasNotLentEndsAWorker) {
  lend(4);
  const auto said_so =
      said(kHot, kHotLife, GuestsReturned{.model = kHotModel, .pages = host_pages(1, 30)});
  EXPECT_NE(find<KillWorker>(said_so), nullptr);
}

}  // namespace
}  // namespace heddle::core
