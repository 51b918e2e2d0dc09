// Models cut into the stages of a pipeline: real workers with sockets between them, alone and among
// other models.

#include <optional>

#include <gtest/gtest.h>

#include "engine/test_host.h"
#include "live_system.h"

#include <signal.h>

namespace heddle::tests {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPiped = "qwen3-window";
constexpr const char* kSingle = "llama-mha-f32";

class PipesLive : public testing::Test {
 protected:
  /// kPiped in `stages` stages, and kSingle; each of two devices has room for its model and so many
  /// pages more.
  LiveSystem& make(std::int64_t stages, std::int64_t spare_pages, Duration pace = {}) {
    config::Config config = small_host(0, 2);
    add_golden(config, kPiped);
    add_golden(config, kSingle);
    const std::uint64_t memory = memory_for_one(config, spare_pages);
    for (config::DeviceConfig& device : config.devices) {
      device.memory = memory;
      device.pace.step = pace;
    }
    config.models[0].pipeline_parallel = stages;
    system_.emplace(config);
    HEDDLE_CHECK(!system_->failure().has_value());
    return *system_;
  }

  static std::vector<TokenId> prompt_of(const engine::Golden& golden) {
    return {golden.input_ids.begin(), golden.input_ids.begin() + 16};
  }
  std::shared_ptr<Answer> ask(const std::string& model) {
    const engine::Golden& golden = model == kPiped ? piped_ : single_;
    return system_->ask(model, prompt_of(golden), std::ssize(golden.greedy));
  }
  void expect_right(const std::shared_ptr<Answer>& answer, const engine::Golden& golden) {
    ASSERT_TRUE(system_->finish(*answer));
    ASSERT_TRUE(answer->done()) << answer->error()->message;
    EXPECT_EQ(answer->tokens(), golden.greedy);
  }

  const engine::Golden piped_ = engine::read_golden(kPiped);
  const engine::Golden single_ = engine::read_golden(kSingle);
  std::optional<LiveSystem> system_{};
};

TEST_F(PipesLive, SampledAnswersAreThoseOfOneDeviceToTheBit) {
  std::vector<std::vector<TokenId>> answers;
  for (const std::int64_t stages : {1, 2}) {
    LiveSystem& system = make(stages, 8);
    spec::SamplingParams params{
        .temperature = 1.0F, .repetition_penalty = 1.1F, .max_tokens = 24, .ignore_eos = true};
    params.seed = 5;
    const auto answer = system.ask(kPiped, prompt_of(piped_), {params, params});
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_TRUE(answer->done()) << answer->error()->message;
    answers.push_back(answer->tokens(0));
    answers.push_back(answer->tokens(1));
  }
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_EQ(answers[1], answers[3]);
  const core::ModelStatus status = system_->model(kPiped);
  EXPECT_EQ(status.device, DeviceId(0));
  EXPECT_EQ(status.peers, std::vector{DeviceId(1)});
}

TEST_F(PipesLive, AllAtOnceAndInTurnAllGetTheirAnswers) {
  make(2, 4);
  std::vector<std::pair<std::shared_ptr<Answer>, const engine::Golden*>> asked;
  for (int i = 0; i < 12; ++i) {
    asked.emplace_back(ask(kPiped), &piped_);
    asked.emplace_back(ask(kSingle), &single_);
  }
  for (const auto& [answer, golden] : asked) {
    expect_right(answer, *golden);
  }
}

TEST_F(PipesLive, WhereMemoryIsShortAllAreAnswered) {
  config::Config config = small_host(0, 2);
  add_golden(config, kPiped);
  config.models[0].pipeline_parallel = 2;
  const auto stages = agent::open_host_stages(config.models[0].path,
                                              config.directory,
                                              spec::DType::kF32,
                                              {.page_bytes = kPageBytes, .max_batch_tokens = 16},
                                              2);
  ASSERT_TRUE(stages.has_value()) << stages.error().message;
  std::int64_t pages = 0;
  for (const agent::HostModel& stage : *stages) {
    pages = std::max(pages, policy::pages_to_load(stage.footprint));
  }
  for (config::DeviceConfig& device : config.devices) {
    device.memory = static_cast<std::uint64_t>(pages) * kPageBytes;
  }
  system_.emplace(config);
  std::vector<std::shared_ptr<Answer>> asked;
  for (int i = 0; i < 10; ++i) {
    asked.push_back(ask(kPiped));
  }
  for (const auto& answer : asked) {
    expect_right(answer, piped_);
    EXPECT_EQ(answer->record().restarts, 0);
  }
}

TEST_F(PipesLive, AnAnswerGoesOnWhicheverStageIsKilled) {
  for (const DeviceId dies : {DeviceId(0), DeviceId(1)}) {
    SCOPED_TRACE(testing::Message() << "killed on device " << dies.value());
    LiveSystem& system = make(2, 4, 3ms);
    const auto answer = ask(kPiped);
    bool killed = false;
    answer->on_news = [&] {
      if (!killed && answer->tokens().size() >= 3) {
        killed = true;
        const int pid = system.system().worker_pid(dies);
        HEDDLE_CHECK(pid > 0 && ::kill(pid, SIGKILL) == 0);
      }
    };
    expect_right(answer, piped_);
    EXPECT_TRUE(killed);
    EXPECT_EQ(answer->record().restarts, 1);
    ASSERT_TRUE(system.workers_up());
    expect_right(ask(kPiped), piped_);
  }
}

TEST_F(PipesLive, UnloadingGivesBackWhatFollowersHadReserved) {
  LiveSystem& system = make(2, 4);
  expect_right(ask(kPiped), piped_);
  const auto reserved = [&] {
    return system.system().devices()[1].usage.of(ledger::LeaseKind::kShardPipe).held;
  };
  EXPECT_GT(reserved(), 0);
  bool unloaded = false;
  system.system().unload(system.model(kPiped).id,
                         core::EvictionReason::kOperator,
                         [&](const Result<void>& done) { unloaded = done.has_value(); });
  ASSERT_TRUE(system.run_until([&] { return unloaded; }));
  ASSERT_TRUE(system.run_until([&] {
    const std::vector<core::DeviceStatus> devices = system.system().devices();
    return devices[0].usage.free == devices[0].usage.total &&
           devices[1].usage.free == devices[1].usage.total;
  }));
  EXPECT_EQ(reserved(), 0);
}

}  // namespace
}  // namespace heddle::tests
