#include "external/engine_host.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "external/test_engine.h"
#include "http/client.h"

#include <signal.h>

namespace heddle::external {
namespace {

using core::EngineNews;
using core::EngineState;
using spec::SuspendLevel;
using testing::HasSubstr;

constexpr std::size_t kPage = 1U << 20U;
constexpr DeviceId kGpu{3};
constexpr ModelId kAlpha{1};
constexpr ModelId kBeta{2};

/// A host with a device of 400 MiB that only engines use.
class EngineHostTest : public testing::Test {
 protected:
  EngineHostTest() {
    host_ = std::make_unique<EngineHost>(
        loop_.get_executor(),
        EngineHostSetup{
            .page_bytes = kPage, .record_directory = scratch_ / "records", .sample_interval = 50ms},
        EngineHost::Handlers{
            .on_event = [this](core::ManagerEvent event) { take(event); },
            .on_borrow = [this](const core::Borrow& borrow) { borrowed_ = borrow.pages; },
            .on_repay =
                [this](const core::Repay& repay) {
                  borrowed_ -= repay.pages;
                  host_->repaid(repay.model);
                },
            .on_step = [this](auto, const auto&, const auto&) { ++steps_; }});
  }

  void take(const core::ManagerEvent& event) {
    if (const auto* said = std::get_if<core::EngineSaid>(&event)) {
      news_.push_back(*said);
    }
  }

  /// An engine that holds about 100 MiB and says that it takes `pages`.
  void add(ModelId model,
           const std::vector<std::string>& flags,
           std::vector<SuspendLevel> levels,
           DeviceId device = kGpu,
           std::int64_t pages = 200) {
    Scratch& scratch = *scratches_.emplace_back(std::make_unique<Scratch>());
    std::vector<std::string> all = {"--anonymous-mib", "64", "--any-model"};
    all.insert(all.end(), flags.begin(), flags.end());
    config::EngineConfig config = engine_config(scratch, all);
    config.kind = spec::EngineKind::kVllm;
    config.suspend = levels;
    hosted_.push_back(
        {.model = model, .name = "m" + std::to_string(model.value()), .config = config});
    configure_.engines.push_back(
        {.model = model, .device = device, .pages = pages, .levels = std::move(levels)});
    configure_.devices = {{.id = kGpu, .pages = 400}};
    configure_.host_pages = 1000;
    host_->set_engines(configure_, hosted_);
  }

  void load(ModelId model) { host_->carry_out(core::LoadOn{.device = kGpu, .model = model}); }
  void evict(ModelId model, std::int64_t free_pages) {
    host_->carry_out(core::EvictFrom{.device = kGpu, .model = model, .free_pages = free_pages});
  }
  /// Runs until this was said; what was said with it.
  std::optional<core::EngineSaid> await(ModelId model, EngineNews news) {
    std::optional<core::EngineSaid> found;
    run_until(loop_, [&] {
      const auto said = std::find_if(news_.begin(), news_.end(), [&](const auto& each) {
        return each.model == model && each.news == news;
      });
      if (said != news_.end()) {
        found = *said;
        news_.erase(news_.begin(), said + 1);
      }
      return found.has_value();
    });
    return found;
  }
  core::EngineStatus status(ModelId model) {
    for (const core::EngineStatus& each : host_->engines()) {
      if (each.model == model) {
        return each;
      }
    }
    return {};
  }

  Scratch scratch_{};
  boost::asio::io_context loop_{1};
  std::vector<std::unique_ptr<Scratch>> scratches_{};
  std::vector<ConfiguredEngine> hosted_{};
  core::ConfigureEngines configure_{};
  std::vector<core::EngineSaid> news_{};
  std::int64_t borrowed_ = 0;
  int steps_ = 0;
  std::unique_ptr<EngineHost> host_{};
};

TEST_F(EngineHostTest, BringsEnginesInAndOutAndBack) {
  add(kAlpha, {}, {SuspendLevel::kSleep, SuspendLevel::kStop});
  load(kAlpha);
  const auto serving = await(kAlpha, EngineNews::kServing);
  ASSERT_TRUE(serving.has_value());
  EXPECT_EQ(serving->held_pages, 200) << "what is reserved counts as held";
  EXPECT_GT(status(kAlpha).held_pages, 64);
  EXPECT_EQ(host_->usage(kGpu)->free, 200);
  EXPECT_EQ(host_->address(kAlpha)->port, hosted_[0].config.upstream.port);

  evict(kAlpha, 100);
  const auto asleep = await(kAlpha, EngineNews::kSuspended);
  ASSERT_TRUE(asleep.has_value());
  EXPECT_EQ(status(kAlpha).state, EngineState::kSuspended);
  EXPECT_EQ(status(kAlpha).level, SuspendLevel::kSleep);
  EXPECT_EQ(host_->last_passage(kAlpha)->what, "suspend by sleep");
  EXPECT_LT(status(kAlpha).held_pages, 64);

  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  EXPECT_EQ(status(kAlpha).starts, 1U) << "resumed";
  EXPECT_EQ(host_->last_passage(kAlpha)->what, "resume");
  EXPECT_GT(steps_, 0);
}

TEST_F(EngineHostTest, GoesOnToTheNextLevelWhereOneFreesTooLittle) {
  add(kAlpha, {"--leak-on-sleep-mib", "128"}, {SuspendLevel::kSleep, SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  evict(kAlpha, 150);
  ASSERT_TRUE(await(kAlpha, EngineNews::kEnded).has_value());
  EXPECT_EQ(status(kAlpha).state, EngineState::kStopped);
  EXPECT_EQ(status(kAlpha).costs[static_cast<std::size_t>(SuspendLevel::kSleep)].insufficient, 1U);
  EXPECT_TRUE(host_->processes(kAlpha).empty());
  EXPECT_EQ(host_->usage(kGpu)->free, 400);
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  EXPECT_EQ(status(kAlpha).starts, 2U);
}

TEST_F(EngineHostTest, RunsSeveralAtATime) {
  add(kAlpha, {}, {SuspendLevel::kStop});
  add(kBeta, {}, {SuspendLevel::kStop});
  load(kAlpha);
  load(kBeta);
  ASSERT_TRUE(run_until(loop_, [&] {
    return status(kAlpha).state == EngineState::kRunning &&
           status(kBeta).state == EngineState::kRunning;
  }));
  EXPECT_EQ(host_->usage(kGpu)->free, 0);
}

TEST_F(EngineHostTest, TellsWhyOneCannotBeStarted) {
  add(kAlpha, {"--never-healthy", "--die-after", "0.1"}, {SuspendLevel::kStop});
  load(kAlpha);
  const auto failed = await(kAlpha, EngineNews::kFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_THAT(failed->reason.message, HasSubstr("out of luck"));
  EXPECT_EQ(host_->usage(kGpu)->free, 400);
  // And tries again when it is asked to.
  load(kAlpha);
  EXPECT_TRUE(await(kAlpha, EngineNews::kFailed).has_value());
}

TEST_F(EngineHostTest, TellsOfAnEngineThatDied) {
  add(kAlpha, {}, {SuspendLevel::kFreeze, SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  const std::vector<pid_t> pids = host_->processes(kAlpha);
  ASSERT_FALSE(pids.empty());
  ASSERT_EQ(::kill(pids[0], SIGKILL), 0);
  const auto lost = await(kAlpha, EngineNews::kLost);
  ASSERT_TRUE(lost.has_value());
  EXPECT_THAT(lost->reason.message, HasSubstr("signal 9"));
  EXPECT_EQ(status(kAlpha).deaths, 1U);
  EXPECT_EQ(host_->usage(kGpu)->free, 400);
  load(kAlpha);
  EXPECT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
}

TEST_F(EngineHostTest, EndsOneThatIsEvictedWhileItStarts) {
  add(kAlpha, {"--never-healthy"}, {SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(run_until(loop_, [&] { return !host_->processes(kAlpha).empty(); }));
  evict(kAlpha, 200);
  ASSERT_TRUE(await(kAlpha, EngineNews::kEnded).has_value());
  EXPECT_TRUE(host_->processes(kAlpha).empty());
  EXPECT_EQ(host_->usage(kGpu)->free, 400);
}

TEST_F(EngineHostTest, StartsOneAnewThatIsOfNoUseAfterItsResume) {
  add(kAlpha, {"--garbage-after-wake"}, {SuspendLevel::kSleep, SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  evict(kAlpha, 100);
  ASSERT_TRUE(await(kAlpha, EngineNews::kSuspended).has_value());
  load(kAlpha);
  const auto lost = await(kAlpha, EngineNews::kLost);
  ASSERT_TRUE(lost.has_value());
  EXPECT_THAT(lost->reason.message, HasSubstr("probe"));
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  EXPECT_EQ(status(kAlpha).starts, 2U);
}

TEST_F(EngineHostTest, StartsOneAnewWhoseWeightsWereNotReadAgain) {
  add(kAlpha, {"--fail-reload"}, {SuspendLevel::kDeepSleep, SuspendLevel::kStop});
  add(kBeta, {"--empty-reload"}, {SuspendLevel::kDeepSleep, SuspendLevel::kStop});
  for (const auto& [model, reason] : {std::pair{kAlpha, "/collective_rpc"}, {kBeta, "probe"}}) {
    load(model);
    ASSERT_TRUE(await(model, EngineNews::kServing).has_value());
    evict(model, 100);
    ASSERT_TRUE(await(model, EngineNews::kSuspended).has_value());
    EXPECT_EQ(status(model).level, SuspendLevel::kDeepSleep);
    load(model);
    const auto lost = await(model, EngineNews::kLost);
    ASSERT_TRUE(lost.has_value());
    EXPECT_THAT(lost->reason.message, HasSubstr(reason));
    load(model);
    ASSERT_TRUE(await(model, EngineNews::kServing).has_value());
    EXPECT_EQ(status(model).starts, 2U);
  }
}

TEST_F(EngineHostTest, BorrowsFromAWorkersDeviceAndRepays) {
  constexpr DeviceId kWorkers{0};
  add(kAlpha, {}, {SuspendLevel::kStop}, kWorkers);
  host_->carry_out(core::LoadOn{.device = kWorkers, .model = kAlpha});
  ASSERT_TRUE(run_until(loop_, [&] { return borrowed_ == 200; }));
  EXPECT_TRUE(host_->processes(kAlpha).empty()) << "memory first";
  host_->grant(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  host_->carry_out(core::EvictFrom{.device = kWorkers, .model = kAlpha, .free_pages = 200});
  ASSERT_TRUE(await(kAlpha, EngineNews::kEnded).has_value());
  EXPECT_EQ(borrowed_, 0);

  host_->carry_out(core::LoadOn{.device = kWorkers, .model = kAlpha});
  ASSERT_TRUE(run_until(loop_, [&] { return borrowed_ == 200; }));
  news_.clear();
  host_->refuse(kAlpha, {Code::kResourceExhausted, "no pages"});
  EXPECT_TRUE(await(kAlpha, EngineNews::kRefused).has_value());
}

TEST_F(EngineHostTest, NoticesThatOneGrows) {
  add(kAlpha, {"--grow-on-wake-mib", "150"}, {SuspendLevel::kSleep, SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  const std::int64_t before = status(kAlpha).held_pages;
  // Behind our back: the look at running engines must find it.
  const HttpAddress address = *host_->address(kAlpha);
  ASSERT_TRUE(
      run(loop_, http::exchange(address, {.method = "POST", .target = "/sleep", .patience = 1min}))
          .has_value());
  ASSERT_TRUE(
      run(loop_,
          http::exchange(address, {.method = "POST", .target = "/wake_up", .patience = 1min}))
          .has_value());
  EXPECT_TRUE(run_until(loop_, [&] { return status(kAlpha).held_pages >= before + 140; }));
}

TEST_F(EngineHostTest, ForgetsOneThatIsNotConfiguredAnyMoreWhenItHasEnded) {
  add(kAlpha, {}, {SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  configure_.engines.clear();
  host_->set_engines(configure_, {});
  EXPECT_TRUE(host_->hosts(kAlpha));
  evict(kAlpha, 0);
  ASSERT_TRUE(await(kAlpha, EngineNews::kEnded).has_value());
  EXPECT_FALSE(host_->hosts(kAlpha));
}

TEST_F(EngineHostTest, LeavesNothingBehind) {
  add(kAlpha, {"--sigterm", "ignore", "--stray"}, {SuspendLevel::kFreeze, SuspendLevel::kStop});
  add(kBeta, {"--never-healthy"}, {SuspendLevel::kStop});
  load(kAlpha);
  ASSERT_TRUE(await(kAlpha, EngineNews::kServing).has_value());
  evict(kAlpha, 0);
  ASSERT_TRUE(await(kAlpha, EngineNews::kSuspended).has_value());
  load(kBeta);
  ASSERT_TRUE(run_until(loop_, [&] { return !host_->processes(kBeta).empty(); }));
  std::vector<pid_t> pids = host_->processes(kAlpha);
  for (const pid_t pid : host_->processes(kBeta)) {
    pids.push_back(pid);
  }
  EXPECT_GE(pids.size(), 3U);
  host_.reset();
  for (const pid_t pid : pids) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
  loop_.restart();
  loop_.run_for(100ms);  // What was under way ends.
}

}  // namespace
}  // namespace heddle::external
