#include "twin/fetcher.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kWhole{1};
constexpr ModelId kStage{2};
constexpr std::uint64_t kRecord = std::uint64_t{64} << 10U;

TwinModel of_records(ModelId id, std::vector<std::uint64_t> numbers) {
  TwinModel model{.model = {.id = id, .image_bytes = numbers.size() * 1000, .fetched = true},
                  .source = kWhole};
  for (const std::uint64_t number : numbers) {
    model.records.push_back({.number = number, .bytes = kRecord});
  }
  return model;
}

/// Hosts whose links take 64 KiB in a tenth of a second, without credit.
struct FetcherRig {
  struct Host {
    Host(FetcherRig& rig)
        : fetcher(
              kRecord * 10,
              rig.paths,
              rig.agenda,
              rig.faults,
              nullptr,
              [&rig](HostId id) { return &rig.hosts.at(id.value() - 1)->fetcher; },
              [this, &rig](const core::AgentEvent& event) {
                heard.emplace_back(rig.agenda.now(), event);
              }) {}
    std::vector<std::pair<Instant, core::AgentEvent>> heard{};
    Fetcher fetcher;

    [[nodiscard]] const core::ReadEnded* ended(ModelId model) const {
      for (const auto& [at, event] : heard) {
        const auto* end = std::get_if<core::ReadEnded>(&event);
        if (end != nullptr && end->model == model) {
          return end;
        }
      }
      return nullptr;
    }
  };

  FetcherRig() {
    hosts.push_back(std::make_unique<Host>(*this));
    hosts.push_back(std::make_unique<Host>(*this));
  }
  void run() {
    while (agenda.advance()) {
    }
  }
  [[nodiscard]] Duration gone() const { return agenda.now().time_since_epoch(); }

  Agenda agenda{};
  Faults faults{FaultPlan{}};
  Paths paths{.fetch = {.begin = {}, .credit = {}, .ahead = {}}};
  std::vector<std::unique_ptr<Host>> hosts{};
  TwinModel whole = of_records(kWhole, {0, 1, 2, 3});
  TwinModel stage = of_records(kStage, {2, 3});
};

TEST(TwinFetcher, TellsHowFarItIsAndThatItHasEnded) {
  FetcherRig rig;
  rig.hosts[0]->fetcher.start({.model = kWhole}, rig.whole);
  EXPECT_TRUE(rig.hosts[0]->fetcher.fetches(kWhole));
  rig.run();
  ASSERT_EQ(rig.hosts[0]->heard.size(), 4U);
  EXPECT_EQ(std::get<core::ReadProgress>(rig.hosts[0]->heard[1].second).bytes, 2000U);
  ASSERT_NE(rig.hosts[0]->ended(kWhole), nullptr);
  EXPECT_FALSE(rig.hosts[0]->ended(kWhole)->error);
  EXPECT_FALSE(rig.hosts[0]->fetcher.fetches(kWhole));
  EXPECT_NEAR(to_seconds(rig.gone()), 0.375, 0.01);
}

TEST(TwinFetcher, NoByteComesTwiceToAHost) {
  FetcherRig rig;
  rig.hosts[0]->fetcher.start({.model = kStage}, rig.stage);
  rig.hosts[0]->fetcher.start({.model = kWhole}, rig.whole);
  rig.run();
  EXPECT_NE(rig.hosts[0]->ended(kStage), nullptr);
  EXPECT_NE(rig.hosts[0]->ended(kWhole), nullptr);
  EXPECT_NEAR(to_seconds(rig.gone()), 0.375, 0.01) << "as long as the whole alone";
}

TEST(TwinFetcher, OneThatIsCancelledKeepsWhatHasCome) {
  FetcherRig rig;
  rig.hosts[0]->fetcher.start({.model = kWhole}, rig.whole);
  rig.agenda.after(150ms, [&] { rig.hosts[0]->fetcher.cancel(kWhole); });
  rig.run();
  ASSERT_NE(rig.hosts[0]->ended(kWhole), nullptr);
  ASSERT_TRUE(rig.hosts[0]->ended(kWhole)->error);
  EXPECT_EQ(rig.hosts[0]->ended(kWhole)->error->code, Code::kCancelled);
  const Duration before = rig.gone();
  rig.hosts[0]->fetcher.start({.model = kWhole}, rig.whole);
  rig.run();
  EXPECT_NEAR(to_seconds(rig.gone() - before), 0.2, 0.03) << "two records are there";
}

TEST(TwinFetcher, AnotherHostGivesOverItsOwnLink) {
  FetcherRig rig;
  rig.hosts[1]->fetcher.start({.model = kWhole}, rig.whole);
  rig.run();
  const Instant before = rig.agenda.now();
  rig.hosts[0]->fetcher.start({.model = kWhole, .peers = {{.id = HostId(2)}}}, rig.whole);
  rig.run();
  EXPECT_NE(rig.hosts[0]->ended(kWhole), nullptr);
  EXPECT_NEAR(to_seconds(rig.agenda.now() - before), 0.4, 0.03);
}

}  // namespace
}  // namespace heddle::twin
