#include <deque>
#include <set>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
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
  explicit GuestsOfAnAgent(const AgentDevice& hot = {.id = kHot, .pages = 12},
                           const AgentDevice& host = {.id = kHost, .pages = 12})
      : core(AgentOptions{.host_pages = 10, .devices = {hot, host}}) {
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
  AgentCore core;
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

/// Two GPUs of 12 pages each, whose pages are numbered from 0.
class GuestsBetweenGpus : public GuestsOfAnAgent {
 protected:
  GuestsBetweenGpus()
      : GuestsOfAnAgent({.id = kHot, .pages = 12, .copy = true, .own_memory = true},
                        {.id = kHost, .pages = 12, .copy = true, .own_memory = true}) {}

  static std::vector<PageId> pages(std::uint64_t count, std::uint64_t first = 0) {
    return host_pages(count, first);
  }
  std::vector<AgentCommand> shared(std::uint64_t count, std::uint64_t first = 0) {
    return said(kHost, kHostLife, GuestsShared{.model = kHotModel, .pages = pages(count, first)});
  }
};

TEST_F(GuestsBetweenGpus, TheHotWorkerGetsPagesWhenAllTheirMemoryIsShared) {
  const auto lent = lend(4, 0);
  ASSERT_NE(find<ShareMemory>(lent), nullptr);
  EXPECT_EQ(find<ShareMemory>(lent)->pages, pages(4));
  EXPECT_EQ(find<LendGuests>(lent), nullptr);
  EXPECT_EQ(find<GuestState>(lent), nullptr) << "nobody can use them yet";
  EXPECT_EQ(find<LendGuests>(shared(3)), nullptr);
  const auto last = shared(1, 3);
  EXPECT_EQ(find<ConnectGuests>(last)->pages, pages(4));
  ASSERT_NE(find<PassMemory>(last), nullptr);
  EXPECT_EQ(find<PassMemory>(last)->pages, pages(4));
  ASSERT_NE(find<LendGuests>(last), nullptr);
  EXPECT_EQ(find<LendGuests>(last)->pages, pages(4));
  EXPECT_LT(find<PassMemory>(last), static_cast<const void*>(find<LendGuests>(last)))
      << "it maps them first";
  EXPECT_EQ(find<GuestState>(last)->pages, 4);
}

TEST_F(GuestsBetweenGpus, MoreIsLentOverTheAreaThereIs) {
  lend(4, 0);
  shared(4);
  lend(2, 4);
  const auto more = shared(2, 4);
  EXPECT_EQ(find<ConnectGuests>(more), nullptr) << "the hot stream may be at a step";
  ASSERT_NE(find<LeaseGuests>(more), nullptr);
  EXPECT_EQ(find<LeaseGuests>(more)->pages, pages(6));
  EXPECT_EQ(find<PassMemory>(more)->pages, pages(2, 4));
  EXPECT_EQ(find<LendGuests>(more)->pages, pages(2, 4));
  said(kHot, kHotLife, GuestsReturned{.model = kHotModel, .pages = pages(6)});
  lend(1, 0);
  EXPECT_NE(find<ConnectGuests>(shared(1)), nullptr) << "a new pair has a new one";
}

TEST_F(GuestsBetweenGpus, WhatCannotBeSharedStaysTheHosts) {
  lend(4, 0);
  shared(4);
  lend(3, 4);
  shared(1, 4);
  const auto failed = said(kHost,
                           kHostLife,
                           GuestsShared{.model = kHotModel,
                                        .pages = pages(2, 5),
                                        .failure = Error{Code::kResourceExhausted, "no memory"}});
  EXPECT_EQ(find<LeaseGuests>(failed)->pages, pages(4)) << "those before are of use";
  EXPECT_EQ(find<GivePages>(failed)->pages, pages(3, 4));
  EXPECT_TRUE(find<GuestState>(failed)->refused);
  EXPECT_EQ(find<GuestState>(failed)->pages, 4);
  EXPECT_TRUE(shared(1, 6).empty()) << "it comes too late";
}

TEST_F(GuestsBetweenGpus, WhatTheHotWorkerCannotMapIsRefused) {
  lend(4, 0);
  shared(4);
  const auto back = said(kHot,
                         kHotLife,
                         GuestsReturned{.model = kHotModel,
                                        .pages = pages(4),
                                        .failure = Error{Code::kFailedPrecondition, "no way"}});
  EXPECT_EQ(find<GivePages>(back)->pages, pages(4));
  EXPECT_TRUE(find<GuestState>(back)->refused);
}

TEST_F(GuestsBetweenGpus, OnlyWhatTheHotWorkerHasIsRecalled) {
  lend(4, 0);
  EXPECT_EQ(find<RecallGuests>(tell(Unweave{.host = kHost, .model = kHotModel, .pages = 4})),
            nullptr);
  shared(4);
  lend(2, 4);
  const auto recalled = tell(Unweave{.host = kHost, .model = kHotModel, .pages = 6});
  ASSERT_NE(find<RecallGuests>(recalled), nullptr);
  EXPECT_EQ(find<RecallGuests>(recalled)->count, 4);
  EXPECT_NE(find<KillWorker>(
                said(kHot, kHotLife, GuestsReturned{.model = kHotModel, .pages = pages(1, 5)})),
            nullptr)
      << "it does not have that page";
}

TEST_F(GuestsBetweenGpus, ALaterLifeOfTheHostMapsWhatItLends) {
  lend(4, 0);
  shared(4);
  lend(2, 4);
  shared(1, 4);
  const auto died = tell(WorkerExited{.device = kHost, .epoch = kHostLife});
  EXPECT_EQ(find<GuestState>(died)->pages, 4) << "the others have never left it";
  now = find<WakeAt>(died)->at;
  EXPECT_EQ(find<SpawnWorker>(tell(Tick{}))->pages.size(), 8U);
  const auto up = tell(WorkerConnected{.device = kHost, .epoch = WorkerEpoch(3)});
  ASSERT_NE(find<ShareMemory>(up), nullptr);
  EXPECT_EQ(find<ShareMemory>(up)->pages, pages(4));
  EXPECT_EQ(find<ShareMemory>(up)->host_epoch, WorkerEpoch(3));
  EXPECT_LT(find<ShareMemory>(up), static_cast<const void*>(find<ConnectGuests>(up)));
  const auto failed = said(
      kHost,
      WorkerEpoch(3),
      GuestsShared{
          .model = kHotModel, .pages = pages(4), .failure = Error{Code::kUnavailable, "no way"}});
  EXPECT_EQ(find<LeaseGuests>(failed), nullptr) << "the hot worker still has it";
}

TEST_F(GuestsBetweenGpus, WithTheHotWorkerAllGoesHomeWhetherSharedOrNot) {
  lend(4, 0);
  shared(4);
  lend(2, 4);
  const auto died = tell(WorkerExited{.device = kHot, .epoch = kHotLife});
  EXPECT_EQ(find<GivePages>(died)->pages, pages(6));
  EXPECT_TRUE(find<LeaseGuests>(died)->pages.empty());
  EXPECT_EQ(find<LendGuests>(shared(2, 4)), nullptr);
}

TEST_F(GuestsBetweenGpus, WhenBothDieTheMemoryThatWasSharedIsNobodys) {
  lend(4, 0);
  shared(4);
  tell(WorkerExited{.device = kHost, .epoch = kHostLife});
  const auto died = tell(WorkerExited{.device = kHot, .epoch = kHotLife});
  ASSERT_NE(find<LeaseGuests>(died), nullptr);
  EXPECT_TRUE(find<LeaseGuests>(died)->pages.empty());
}

TEST(GuestsOfUnlikeDevices, AGpuAndAPartOfTheHostDoNotWeave) {
  AgentCore core{
      AgentOptions{.host_pages = 10,
                   .devices = {{.id = kHot, .pages = 12, .copy = true, .own_memory = true},
                               {.id = kHost, .pages = 12}}}};
  std::vector<AgentCommand> commands;
  core.step(Instant{1s}, StartAgent{}, commands);
  core.step(Instant{1s}, WorkerConnected{.device = kHot, .epoch = kHotLife}, commands);
  core.step(Instant{1s}, WorkerConnected{.device = kHost, .epoch = kHostLife}, commands);
  commands.clear();
  core.step(Instant{1s},
            Weave{.host = kHost,
                  .basis = {.epoch = kHostLife},
                  .hot = kHot,
                  .hot_epoch = kHotLife,
                  .model = kHotModel,
                  .pages = 2},
            commands);
  EXPECT_EQ(find<LendPages>(commands), nullptr);
  ASSERT_NE(find<GuestState>(commands), nullptr);
  EXPECT_TRUE(find<GuestState>(commands)->refused);
}

/// A GPU that lends to models of another, in any order of what can happen. Holds what each worker
/// was told, and that the core's own invariants hold after each event.
class RandomGpus {
 public:
  explicit RandomGpus(std::uint64_t seed) : rng_(seed) {
    AgentModels models;
    models.models.push_back({.id = kHotModel, .image_bytes = 600, .footprint = {.image_pages = 6}});
    tell(models);
    tell(StartAgent{});
  }

  void run(int events) {
    for (int i = 0; i < events; ++i) {
      now_ += 20ms;
      happen();
    }
    // In the end all comes home: the hot worker ends, and what is on its way is answered.
    end(hot_);
    while (!to_share_.empty() || asked_ > 0) {
      answer();
    }
    EXPECT_TRUE(lent_.empty());
    EXPECT_TRUE(hot_has_.empty());
  }
  [[nodiscard]] int grants() const { return grants_; }

 private:
  struct Worker {
    DeviceId id{};
    WorkerEpoch epoch{};
    bool up = false;
  };

  void happen() {
    switch (rng_.below(12)) {
      case 0:
        return end(rng_.below(2) == 0 ? hot_ : host_);
      case 1:
      case 2:
      case 3:
        return order();
      case 4:
      case 5:
        return give_back();
      case 6:
        tell(Unweave{.host = kHost,
                     .model = kHotModel,
                     .pages = 1 + static_cast<std::int64_t>(rng_.below(4))});
        return;
      default:
        return answer();
    }
  }

  void order() {
    tell(Tick{});
    if (hot_.up && host_.up && asked_ == 0 && pool_.size() > 1) {
      tell(Weave{.host = kHost,
                 .basis = {.epoch = host_.epoch},
                 .hot = kHot,
                 .hot_epoch = hot_.epoch,
                 .model = kHotModel,
                 .pages = 1 + static_cast<std::int64_t>(rng_.below(pool_.size() - 1))});
    }
  }
  /// The host's worker answers the first that it was asked.
  void answer() {
    if (!to_share_.empty()) {
      GuestsShared shared{.model = kHotModel};
      const auto end =
          to_share_.begin() + static_cast<std::ptrdiff_t>(1 + rng_.below(to_share_.size()));
      shared.pages.assign(to_share_.begin(), end);
      to_share_.erase(to_share_.begin(), end);
      if (rng_.below(8) == 0) {
        shared.failure = Error{Code::kResourceExhausted, "no memory"};
      }
      tell(WorkerSaid{.device = kHost, .epoch = host_.epoch, .report = shared});
    } else if (asked_ > 0) {
      PagesReturned returned{.model = kHotModel};
      for (; asked_ > 0; --asked_) {
        returned.pages.push_back(*pool_.begin());
        lent_.insert(*pool_.begin());
        pool_.erase(pool_.begin());
      }
      tell(WorkerSaid{.device = kHost, .epoch = host_.epoch, .report = returned});
    }
  }
  void give_back() {
    if (hot_has_.empty()) {
      return;
    }
    const std::size_t count = 1 + rng_.below(hot_has_.size());
    GuestsReturned returned{.model = kHotModel};
    for (std::size_t i = 0; i < count; ++i) {
      returned.pages.push_back(*hot_has_.begin());
      hot_has_.erase(hot_has_.begin());
    }
    if (rng_.below(4) == 0) {
      returned.failure = Error{Code::kUnavailable, "no way"};
    }
    tell(WorkerSaid{.device = kHot, .epoch = hot_.epoch, .report = returned});
  }
  void end(Worker& worker) {
    if (!worker.up) {
      return;
    }
    worker.up = false;
    if (worker.id == kHost) {
      asked_ = 0;
      to_share_.clear();
    } else {
      hot_has_.clear();
    }
    tell(WorkerExited{.device = worker.id, .epoch = worker.epoch});
  }

  void tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core_.step(now_, event, commands);
    core_.check_invariants();
    for (const AgentCommand& command : commands) {
      std::visit([this](const auto& concrete) { carry_out(concrete); }, command);
    }
  }
  void carry_out(const SpawnWorker& command) {
    Worker& worker = command.device == kHot ? hot_ : host_;
    worker.epoch = command.epoch;
    worker.up = true;
    if (worker.id == kHost) {
      pool_ = {command.pages.begin(), command.pages.end()};
      for (const PageId page : lent_) {
        EXPECT_FALSE(pool_.contains(page));
      }
    }
    tell(WorkerConnected{.device = command.device, .epoch = command.epoch});
  }
  void carry_out(const SendWorker& command) {
    if (const auto* lend = std::get_if<LendPages>(&command.message)) {
      asked_ = lend->count;
    } else if (const auto* give = std::get_if<GivePages>(&command.message)) {
      for (const PageId page : give->pages) {
        EXPECT_TRUE(pool_.insert(page).second);
        EXPECT_FALSE(lent_.contains(page)) << "it was said to be lent no longer before";
        EXPECT_FALSE(hot_has_.contains(page));
      }
    } else if (const auto* guests = std::get_if<LendGuests>(&command.message)) {
      ++grants_;
      for (const PageId page : guests->pages) {
        EXPECT_TRUE(passed_.contains(page)) << "its memory goes first";
        EXPECT_TRUE(hot_has_.insert(page).second);
      }
    }
  }
  void carry_out(const ShareMemory& command) {
    for (const PageId page : command.pages) {
      EXPECT_TRUE(lent_.contains(page));
      if (!hot_has_.contains(page)) {
        to_share_.push_back(page);
      }
    }
  }
  void carry_out(const PassMemory& command) {
    passed_ = {command.pages.begin(), command.pages.end()};
    for (const PageId page : to_share_) {
      EXPECT_FALSE(passed_.contains(page)) << "it was not shared yet";
    }
  }
  void carry_out(const LeaseGuests& command) {
    lent_ = {command.pages.begin(), command.pages.end()};
    for (const PageId page : hot_has_) {
      EXPECT_TRUE(lent_.contains(page));
    }
  }
  void carry_out(const KillWorker& command) { ADD_FAILURE() << command.reason.message; }
  template <class T>
  void carry_out(const T& /*command*/) {}

  Rng rng_;
  Instant now_{1s};
  AgentCore core_{
      AgentOptions{.host_pages = 10,
                   .devices = {{.id = kHot, .pages = 12, .copy = true, .own_memory = true},
                               {.id = kHost, .pages = 12, .copy = true, .own_memory = true}},
                   .restart_most = 100ms}};
  Worker hot_{.id = kHot};
  Worker host_{.id = kHost};
  std::set<PageId> pool_{};        ///< Of the host's worker.
  std::set<PageId> lent_{};        ///< By it, as it was last told.
  std::int64_t asked_ = 0;         ///< Pages that it was asked to lend.
  std::deque<PageId> to_share_{};  ///< That it is to share.
  std::set<PageId> passed_{};      ///< Last passed to the hot worker.
  std::set<PageId> hot_has_{};
  int grants_ = 0;
};

TEST(GuestsOfRandomGpus, EachPageIsInOnePlaceAndAllComeHome) {
  int grants = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomGpus gpus(seed);
    gpus.run(300);
    grants += gpus.grants();
    if (testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(grants, 1000);
}

}  // namespace
}  // namespace heddle::core
