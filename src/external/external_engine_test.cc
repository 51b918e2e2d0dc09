#include "external/external_engine.h"

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "external/fake_checkpoint.h"
#include "external/record.h"
#include "external/test_engine.h"

#include <signal.h>

namespace heddle::external {
namespace {

using spec::SuspendLevel;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMib = 1U << 20U;

/// What is saved of a device is acted out as memory of the host that its meter knows.
class FakeMeter : public DeviceMeter {
 public:
  explicit FakeMeter(std::shared_ptr<FakeCheckpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}
  Result<std::uint64_t> device_bytes(const std::vector<pid_t>& pids) override {
    std::uint64_t sum = 0;
    for (const pid_t pid : pids) {
      const auto found = checkpoint_->states.find(pid);
      const bool saved =
          found != checkpoint_->states.end() && found->second == FakeCheckpoint::State::kSaved;
      sum += saved ? 0 : 100 * kMib;
    }
    return sum;
  }

 private:
  std::shared_ptr<FakeCheckpoint> checkpoint_;
};

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    tools_.blocking_pool = std::make_shared<BlockingPool>(4);
    tools_.grouping = best_grouping();
    tools_.record_directory = scratch_ / "records";
    tools_.no_checkpoint = "no driver";
  }
  ~EngineTest() override {
    engine_.reset();
    tools_.blocking_pool->finish();
  }

  void make(
      const std::vector<std::string>& flags,
      const std::function<void(config::EngineConfig&)>& change = [](auto&) {}) {
    config::EngineConfig config = engine_config(scratch_, flags);
    config.served_name = "alpha";
    change(config);
    engine_ = std::make_unique<ExternalEngine>(
        loop_.get_executor(), "m", config, on_accelerator_, tools_, [this](const std::string& how) {
          died_ = how;
        });
  }
  Result<Holding> start() { return run(loop_, engine_->start()); }
  Result<Holding> suspend(SuspendLevel level) { return run(loop_, engine_->suspend(level)); }
  Result<Holding> resume() { return run(loop_, engine_->resume()); }
  std::string stop() { return run(loop_, engine_->stop()); }

  static std::vector<std::string> names(const Result<Holding>& holding) {
    std::vector<std::string> all;
    for (const Phase& phase : holding.value().phases) {
      all.push_back(phase.name);
    }
    return all;
  }

  Scratch scratch_{};
  boost::asio::io_context loop_{1};
  EngineTools tools_{};
  bool on_accelerator_ = false;
  std::optional<std::string> died_{};
  std::unique_ptr<ExternalEngine> engine_{};
};

TEST_F(EngineTest, StartsIsMeasuredAndEnds) {
  make({"--anonymous-mib", "64", "--child", "--stray"});
  const auto started = start();
  ASSERT_TRUE(started.has_value()) << started.error().message;
  EXPECT_GT(started->device_bytes, 64 * kMib);
  EXPECT_EQ(started->host_bytes, 0U);
  EXPECT_THAT(names(started), ElementsAre("begin", "ready", "probe"));
  EXPECT_EQ(read_records(tools_.record_directory).size(), 1U);
  const std::vector<pid_t> pids = engine_pids(scratch_);
  EXPECT_EQ(pids.size(), 3U);
  EXPECT_EQ(engine_->processes().size(), 3U);
  EXPECT_EQ(stop(), "exit status 0");
  for (const pid_t pid : pids) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
  EXPECT_FALSE(died_.has_value()) << "it was asked to end";
  EXPECT_TRUE(read_records(tools_.record_directory).empty());
}

TEST_F(EngineTest, IsHandledByWhateverKeepsItsProcessesTogether) {
  for (const Grouping grouping : {Grouping::kCgroup2, Grouping::kCgroup1, Grouping::kMarked}) {
    if (!make_process_set(grouping, "heddle-there", "heddle-there")) {
      continue;
    }
    tools_.grouping = grouping;
    std::filesystem::remove(scratch_ / "pids");
    make({"--stray", "--child"});
    ASSERT_TRUE(start().has_value()) << name(grouping);
    const std::vector<pid_t> pids = engine_pids(scratch_);
    EXPECT_EQ(engine_->processes().size(), 3U) << name(grouping);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value()) << name(grouping);
      ASSERT_TRUE(resume().has_value()) << name(grouping);
    }
    ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value()) << name(grouping);
    EXPECT_EQ(stop(), "exit status 0") << name(grouping);
    for (const pid_t pid : pids) {
      EXPECT_TRUE(gone(pid)) << name(grouping);
    }
  }
}

TEST_F(EngineTest, ThatWritesWithoutEndIsHandledAllTheSame) {
  make({"--flood"});
  ASSERT_TRUE(start().has_value());
  ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value());
  ASSERT_TRUE(resume().has_value());
  stop();
  EXPECT_TRUE(engine_->processes().empty());
}

TEST_F(EngineTest, ThatIgnoresSigtermIsKilledInTime) {
  for (const char* how : {"ignore", "hang"}) {
    make({"--sigterm", how}, [](auto& config) { config.stop_timeout = 200ms; });
    ASSERT_TRUE(start().has_value());
    EXPECT_EQ(stop(), "signal 9 (Killed)");
  }
}

TEST_F(EngineTest, IsEndedByItsOwnCommand) {
  make({"--sigterm", "ignore"},
       [](auto& config) { config.stop_command = {"sh", "-c", "kill -INT ${PID}"}; });
  ASSERT_TRUE(start().has_value());
  EXPECT_THAT(stop(), testing::Not(HasSubstr("signal 9")));
}

TEST_F(EngineTest, ThatDiesWhileItLoadsSaysItsLastWords) {
  make({"--never-healthy", "--die-after", "0.3"});
  const auto started = start();
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("exit status 3"));
  EXPECT_THAT(started.error().message, HasSubstr("alpha: out of luck, as told"));
  EXPECT_TRUE(read_records(tools_.record_directory).empty());
}

TEST_F(EngineTest, ThatIsNeverReadyIsEnded) {
  make({"--never-healthy", "--sigterm", "ignore"}, [](auto& config) { config.start_timeout = 1s; });
  const auto started = start();
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(engine_->processes().empty());
}

TEST_F(EngineTest, ThatCannotBeRunSaysSo) {
  make({}, [](auto& config) { config.command = {"/no/such/engine"}; });
  const auto started = start();
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("/no/such/engine"));
  EXPECT_EQ(run(loop_, engine_->stop()), "it was not started");
}

TEST_F(EngineTest, FreezesWithAllItHasAndComesBack) {
  make({"--anonymous-mib", "64", "--stray"});
  const auto started = start();
  ASSERT_TRUE(started.has_value()) << started.error().message;
  const auto frozen = suspend(SuspendLevel::kFreeze);
  ASSERT_TRUE(frozen.has_value()) << frozen.error().message;
  EXPECT_THAT(names(frozen), ElementsAre("freeze"));
  EXPECT_EQ(frozen->device_bytes, started->device_bytes);
  const auto back = resume();
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_THAT(names(back), ElementsAre("thaw", "probe"));
  EXPECT_EQ(stop(), "exit status 0");
}

TEST_F(EngineTest, EndsInPeaceWhileItIsFrozen) {
  make({});
  ASSERT_TRUE(start().has_value());
  ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value());
  EXPECT_EQ(stop(), "exit status 0");
}

TEST_F(EngineTest, GivesBackWhatFilesHold) {
  make({"--anonymous-mib", "32", "--file-mib", "64"});
  const auto started = start();
  ASSERT_TRUE(started.has_value());
  const auto reclaimed = suspend(SuspendLevel::kReclaim);
  if (!reclaimed) {
    GTEST_SKIP() << reclaimed.error().message;
  }
  EXPECT_THAT(names(reclaimed), ElementsAre("freeze", "reclaim"));
  EXPECT_GT(reclaimed->device_bytes, 32 * kMib);
  EXPECT_LE(reclaimed->device_bytes, started->device_bytes - 60 * kMib);
  const auto back = resume();
  ASSERT_TRUE(back.has_value()) << back.error().message;
}

TEST_F(EngineTest, SleepsByItsOwnCallAndFurther) {
  make({"--anonymous-mib", "64", "--file-mib", "32"},
       [](auto& config) { config.kind = spec::EngineKind::kVllm; });
  const auto started = start();
  ASSERT_TRUE(started.has_value());
  // Frozen first: it must be able to hear the call.
  ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value());
  const auto asleep = suspend(SuspendLevel::kSleep);
  ASSERT_TRUE(asleep.has_value()) << asleep.error().message;
  EXPECT_THAT(names(asleep), ElementsAre("thaw", "sleep"));
  EXPECT_LE(asleep->device_bytes, started->device_bytes - 60 * kMib);
  const auto deeper = suspend(SuspendLevel::kReclaim);
  if (deeper) {
    EXPECT_LE(deeper->device_bytes, asleep->device_bytes - 28 * kMib);
  }
  const auto back = resume();
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_THAT(names(back), testing::Contains("wake"));
  EXPECT_GT(back->device_bytes, 64 * kMib);
}

TEST_F(EngineTest, ThatLeaksOrGrowsIsMeasuredSo) {
  make({"--anonymous-mib", "64", "--leak-on-sleep-mib", "48", "--grow-on-wake-mib", "40"},
       [](auto& config) { config.kind = spec::EngineKind::kSglang; });
  const auto started = start();
  ASSERT_TRUE(started.has_value());
  const auto asleep = suspend(SuspendLevel::kSleep);
  ASSERT_TRUE(asleep.has_value()) << asleep.error().message;
  EXPECT_GT(asleep->device_bytes, 48 * kMib);
  const auto back = resume();
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_GT(back->device_bytes, started->device_bytes + 30 * kMib);
}

TEST_F(EngineTest, ThatTalksNonsenseAfterItWokeIsFoundOut) {
  make({"--garbage-after-wake"}, [](auto& config) { config.kind = spec::EngineKind::kVllm; });
  ASSERT_TRUE(start().has_value());
  ASSERT_TRUE(suspend(SuspendLevel::kSleep).has_value());
  const auto back = resume();
  ASSERT_FALSE(back.has_value());
  EXPECT_EQ(back.error().code, Code::kCorrupt);
  EXPECT_EQ(stop(), "exit status 0");
}

TEST_F(EngineTest, SleepsDeeplyAndReadsItsWeightsAgain) {
  make({"--anonymous-mib", "64"}, [](auto& config) { config.kind = spec::EngineKind::kVllm; });
  const auto started = start();
  ASSERT_TRUE(started.has_value());
  for (int i = 0; i < 2; ++i) {
    const auto asleep = suspend(SuspendLevel::kDeepSleep);
    ASSERT_TRUE(asleep.has_value()) << asleep.error().message;
    EXPECT_LE(asleep->device_bytes, started->device_bytes - 60 * kMib);
    const auto back = resume();
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_THAT(names(back),
                ElementsAre("wake weights", "reload", "wake KV", "reset prefixes", "probe"));
  }
}

TEST_F(EngineTest, WhoseWeightsAreNotThereAgainIsFoundOut) {
  const std::pair<const char*, Code> cases[] = {{"--empty-reload", Code::kCorrupt},
                                                {"--fail-reload", Code::kUnavailable},
                                                {"--hang-reload", Code::kDeadlineExceeded}};
  for (const auto& [flag, code] : cases) {
    make({flag}, [](auto& config) {
      config.kind = spec::EngineKind::kVllm;
      config.start_timeout = 5s;  // What a reload may take, too.
      config.resume_timeout = 1s;
    });
    ASSERT_TRUE(start().has_value());
    ASSERT_TRUE(suspend(SuspendLevel::kDeepSleep).has_value());
    const auto back = resume();
    ASSERT_FALSE(back.has_value()) << flag;
    EXPECT_EQ(back.error().code, code) << flag << ": " << back.error().message;
    EXPECT_EQ(stop(), "exit status 0");
  }
}

TEST_F(EngineTest, SleepsDeeperOnlyAfterItWokeAndFreesTheHost) {
  // Of an accelerator its host memory is what was saved to it. 100 MiB are on the device whatever
  // it does, which is not what this is about.
  tools_.meter = std::make_shared<FakeMeter>(std::make_shared<FakeCheckpoint>());
  on_accelerator_ = true;
  make({"--backup-mib", "48"}, [](auto& config) { config.kind = spec::EngineKind::kVllm; });
  ASSERT_TRUE(start().has_value());
  const auto asleep = suspend(SuspendLevel::kSleep);
  ASSERT_TRUE(asleep.has_value()) << asleep.error().message;
  EXPECT_GE(asleep->host_bytes, 44 * kMib);
  const auto deeper = suspend(SuspendLevel::kDeepSleep);
  ASSERT_TRUE(deeper.has_value()) << deeper.error().message;
  EXPECT_THAT(names(deeper), ElementsAre("wake", "sleep"));
  EXPECT_LE(deeper->host_bytes, 8 * kMib) << "what the first level saved is gone";
  const auto back = resume();
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->host_bytes, 0U);
  EXPECT_GE(suspend(SuspendLevel::kSleep)->host_bytes, 44 * kMib) << "counted anew";
}

TEST_F(EngineTest, ThatHangsAfterAResumeIsNotAwaitedForEver) {
  make({"--silent-while", scratch_ / "silent"},
       [](auto& config) { config.resume_timeout = 500ms; });
  ASSERT_TRUE(start().has_value());
  ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value());
  std::ofstream(scratch_ / "silent") << "x";
  const auto back = resume();
  ASSERT_FALSE(back.has_value());
  EXPECT_EQ(back.error().code, Code::kDeadlineExceeded);
}

TEST_F(EngineTest, RunsOnWhereALevelIsNotToBeHad) {
  make({"--fail-sleep"}, [](auto& config) { config.kind = spec::EngineKind::kVllm; });
  ASSERT_TRUE(start().has_value());
  const auto asleep = suspend(SuspendLevel::kSleep);
  ASSERT_FALSE(asleep.has_value());
  const auto saved = suspend(SuspendLevel::kCheckpoint);
  ASSERT_FALSE(saved.has_value());
  EXPECT_EQ(saved.error().message, "checkpoint: not here: no driver");
  // Nothing has changed: it is not suspended at all.
  EXPECT_THAT(names(resume()), ElementsAre("probe"));
  // Nor is one that was frozen before it failed to sleep further.
  ASSERT_TRUE(suspend(SuspendLevel::kFreeze).has_value());
  ASSERT_FALSE(suspend(SuspendLevel::kSleep).has_value());
  EXPECT_THAT(names(resume()), ElementsAre("thaw", "probe"));
}

TEST_F(EngineTest, IsSavedBeforeItIsFrozenAndRestoredAfterItWasThawed) {
  const auto fake = std::make_shared<FakeCheckpoint>();
  fake->everybody = true;
  tools_.checkpoint = fake;
  tools_.meter = std::make_shared<FakeMeter>(fake);
  on_accelerator_ = true;
  make({"--child"});
  const auto started = start();
  ASSERT_TRUE(started.has_value());
  EXPECT_EQ(started->device_bytes, 200 * kMib);
  const auto saved = suspend(SuspendLevel::kCheckpoint);
  ASSERT_TRUE(saved.has_value()) << saved.error().message;
  EXPECT_EQ(saved->device_bytes, 0U);
  EXPECT_THAT(names(saved), ElementsAre("lock", "save", "freeze"));
  const auto back = resume();
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->device_bytes, 200 * kMib);
  EXPECT_THAT(names(back), ElementsAre("thaw", "restore", "unlock", "probe"));

  fake->fails = {"save"};
  EXPECT_FALSE(suspend(SuspendLevel::kCheckpoint).has_value());
  EXPECT_THAT(names(resume()), ElementsAre("probe")) << "it ran on";
  fake->fails.clear();
  ASSERT_TRUE(suspend(SuspendLevel::kCheckpoint).has_value());
  fake->fails = {"restore"};
  EXPECT_FALSE(resume().has_value());
  EXPECT_EQ(stop(), "exit status 0");
}

TEST_F(EngineTest, ThatDiesByItselfIsReportedWhenNothingIsLeft) {
  make({"--stray"});
  ASSERT_TRUE(start().has_value());
  const std::vector<pid_t> pids = engine_pids(scratch_);
  ASSERT_EQ(::kill(pids[0], SIGSEGV), 0);
  ASSERT_TRUE(run_until(loop_, [&] { return died_.has_value(); }));
  EXPECT_THAT(*died_, HasSubstr("signal 11"));
  EXPECT_TRUE(gone(pids[1])) << "the grandchild too";
  EXPECT_FALSE(suspend(SuspendLevel::kFreeze).has_value());
}

TEST_F(EngineTest, IsEndedAtOnceWithItsObject) {
  make({"--sigterm", "ignore", "--stray"});
  ASSERT_TRUE(start().has_value());
  const std::vector<pid_t> pids = engine_pids(scratch_);
  engine_.reset();
  for (const pid_t pid : pids) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
}

TEST_F(EngineTest, MayBeStoppedWhileItStarts) {
  make({"--never-healthy"});
  std::optional<Result<Holding>> started;
  boost::asio::co_spawn(loop_, keep(engine_->start(), started), [](std::exception_ptr) {});
  ASSERT_TRUE(run_until(loop_, [&] { return !engine_->processes().empty(); }));
  EXPECT_FALSE(stop().empty());
  EXPECT_TRUE(engine_->processes().empty());
  ASSERT_TRUE(run_until(loop_, [&] { return started.has_value(); }));
  EXPECT_FALSE(started->has_value());
}

TEST_F(EngineTest, ThatSomebodyElseRunsIsLeftToThem) {
  RunningEngine theirs;
  make({}, [&](auto& config) {
    config.command.clear();
    config.kind = spec::EngineKind::kVllm;
    config.upstream = theirs.config.upstream;
  });
  ASSERT_TRUE(start().has_value());
  const auto frozen = suspend(SuspendLevel::kFreeze);
  ASSERT_FALSE(frozen.has_value());
  EXPECT_EQ(frozen.error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(suspend(SuspendLevel::kSleep).has_value());
  EXPECT_TRUE(resume().has_value());
  EXPECT_EQ(stop(), "it is left to whoever runs it");
  EXPECT_TRUE(runs(engine_pids(theirs.scratch)[0]));
}

}  // namespace
}  // namespace heddle::external
