// Models that are sharded over several devices: real workers in lockstep, alone and among other
// models.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_host.h"
#include "live_system.h"

#include <signal.h>

namespace heddle::tests {
namespace {

using namespace std::chrono_literals;

constexpr const char* kSharded = "qwen3-window";
constexpr const char* kOtherSharded = "mistral-window-f32";
constexpr const char* kSingle = "llama-mha-f32";

class Groups : public testing::Test {
 protected:
  /// kSharded over `ranks` devices, of so many, and kSingle; each has room for its model and so
  /// many pages more.
  LiveSystem& make(int devices,
                   std::int64_t ranks,
                   std::int64_t spare_pages,
                   Duration pace = {},
                   std::int64_t batch = 32) {
    config::Config config = small_host(0, devices);
    add_golden(config, kSharded);
    add_golden(config, kSingle);
    const std::uint64_t memory = memory_for_one(config, spare_pages);
    for (config::DeviceConfig& device : config.devices) {
      device.memory = memory;
      device.pace.step = pace;
    }
    config.models[0].tensor_parallel = ranks;
    config.models[0].batch = batch;
    system_.emplace(config);
    HEDDLE_CHECK(!system_->failure().has_value());
    return *system_;
  }

  static std::vector<TokenId> prompt_of(const engine::Golden& golden) {
    return {golden.input_ids.begin(), golden.input_ids.begin() + 16};
  }
  std::shared_ptr<Answer> ask(const std::string& model) {
    const engine::Golden& golden = model == kSharded ? sharded_ : single_;
    return system_->ask(model, prompt_of(golden), std::ssize(golden.greedy));
  }
  void expect_right(const std::shared_ptr<Answer>& answer, const engine::Golden& golden) {
    ASSERT_TRUE(system_->finish(*answer));
    ASSERT_TRUE(answer->done()) << answer->error()->message;
    EXPECT_EQ(answer->tokens(), golden.greedy);
  }

  const engine::Golden sharded_ = engine::read_golden(kSharded);
  const engine::Golden single_ = engine::read_golden(kSingle);
  std::optional<LiveSystem> system_{};
};

TEST_F(Groups, AModelOverTwoDevicesAnswersAsOnOne) {
  LiveSystem& system = make(2, 2, 4);
  for (int turn = 0; turn < 3; ++turn) {
    expect_right(ask(kSharded), sharded_);
  }
  const core::ModelStatus status = system.model(kSharded);
  EXPECT_EQ(status.device, DeviceId(0));
  EXPECT_EQ(status.peers, std::vector{DeviceId(1)});
  EXPECT_EQ(status.residency, core::Residency::kWarm);
}

TEST_F(Groups, SampledAnswersAreThoseOfOneDevice) {
  std::vector<std::vector<TokenId>> answers;
  for (const std::int64_t ranks : {1, 2}) {
    LiveSystem& system = make(2, ranks, 8);
    spec::SamplingParams params{.temperature = 1.0F, .max_tokens = 24, .ignore_eos = true};
    params.seed = 5;
    const auto answer = system.ask(kSharded, prompt_of(sharded_), {params, params});
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_TRUE(answer->done()) << answer->error()->message;
    answers.push_back(answer->tokens(0));
    answers.push_back(answer->tokens(1));
  }
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_EQ(answers[1], answers[3]);
}

TEST_F(Groups, ItTakesTurnsWithModelsOnItsDevices) {
  make(2, 2, 4);
  for (int turn = 0; turn < 5; ++turn) {
    expect_right(ask(kSharded), sharded_);
    expect_right(ask(kSingle), single_);
  }
}

TEST_F(Groups, AllAtOnceAllGetTheirAnswers) {
  make(3, 2, 4);
  std::vector<std::pair<std::shared_ptr<Answer>, const engine::Golden*>> asked;
  for (int i = 0; i < 12; ++i) {
    asked.emplace_back(ask(kSharded), &sharded_);
    asked.emplace_back(ask(kSingle), &single_);
  }
  for (const auto& [answer, golden] : asked) {
    expect_right(answer, *golden);
  }
}

// With memory for both, steps of the two interleave on each device.
TEST_F(Groups, OthersRunBesideItAndNobodyLeaves) {
  LiveSystem& system = make(2, 2, 200);
  expect_right(ask(kSharded), sharded_);
  std::vector<std::pair<std::shared_ptr<Answer>, const engine::Golden*>> asked;
  for (int i = 0; i < 12; ++i) {
    asked.emplace_back(ask(kSharded), &sharded_);
    asked.emplace_back(ask(kSingle), &single_);
  }
  for (const auto& [answer, golden] : asked) {
    expect_right(answer, *golden);
    EXPECT_EQ(answer->record().restarts, 0);
  }
  for (const char* model : {kSharded, kSingle}) {
    for (const std::uint64_t evictions : system.model(model).evictions) {
      EXPECT_EQ(evictions, 0U) << model;
    }
  }
}

TEST_F(Groups, BesideItAnAnswerGoesOnWhicheverWorkerIsKilled) {
  for (const DeviceId dies : {DeviceId(0), DeviceId(1)}) {
    SCOPED_TRACE(testing::Message() << "killed on device " << dies.value());
    LiveSystem& system = make(2, 2, 200, 3ms);
    const auto sharded = ask(kSharded);
    const auto single = ask(kSingle);
    bool killed = false;
    sharded->on_news = [&] {
      if (!killed && sharded->tokens().size() >= 3) {
        killed = true;
        const int pid = system.system().worker_pid(dies);
        HEDDLE_CHECK(pid > 0 && ::kill(pid, SIGKILL) == 0);
      }
    };
    expect_right(sharded, sharded_);
    expect_right(single, single_);
    EXPECT_TRUE(killed);
  }
}

// More requests than there are pages for at once.
TEST_F(Groups, WhereMemoryIsShortAllAreAnswered) {
  config::Config config = small_host(0, 2);
  add_golden(config, kSharded);
  config.models[0].tensor_parallel = 2;
  const auto shards = agent::open_host_shards(config.models[0].path,
                                              config.directory,
                                              spec::DType::kF32,
                                              {.page_bytes = kPageBytes, .max_batch_tokens = 16},
                                              2);
  ASSERT_TRUE(shards.has_value()) << shards.error().message;
  for (config::DeviceConfig& device : config.devices) {
    const policy::Footprint& footprint = shards->front().footprint;
    device.memory = static_cast<std::uint64_t>(policy::pages_to_load(footprint)) * kPageBytes;
  }
  system_.emplace(config);
  std::vector<std::shared_ptr<Answer>> asked;
  for (int i = 0; i < 10; ++i) {
    asked.push_back(ask(kSharded));
  }
  for (const auto& answer : asked) {
    expect_right(answer, sharded_);
    EXPECT_EQ(answer->record().restarts, 0);
  }
}

TEST_F(Groups, AnAnswerGoesOnWhicheverWorkerIsKilled) {
  for (const DeviceId dies : {DeviceId(0), DeviceId(1)}) {
    SCOPED_TRACE(testing::Message() << "killed on device " << dies.value());
    LiveSystem& system = make(2, 2, 4, 3ms);
    const auto answer = ask(kSharded);
    bool killed = false;
    answer->on_news = [&] {
      if (!killed && answer->tokens().size() >= 3) {
        killed = true;
        const int pid = system.system().worker_pid(dies);
        HEDDLE_CHECK(pid > 0 && ::kill(pid, SIGKILL) == 0);
      }
    };
    expect_right(answer, sharded_);
    EXPECT_TRUE(killed);
    EXPECT_EQ(answer->record().restarts, 1);
    ASSERT_TRUE(system.workers_up());
    for (const core::DeviceStatus& device : system.system().devices()) {
      EXPECT_EQ(device.restarts, 1U) << "of a group all die with one";
    }
    expect_right(ask(kSharded), sharded_);
  }
}

/// Whether the model has requests there, on the device that leads its group.
bool runs_on(LiveSystem& system, std::size_t leader) {
  const core::DeviceStatus device = system.system().devices()[leader];
  return std::ranges::any_of(device.residents, [](const core::ResidentStatus& resident) {
    return resident.model == kSharded && resident.requests_running > 0;
  });
}

TEST_F(Groups, MoreRequestsThanABlockBearsBringAnother) {
  LiveSystem& system = make(4, 2, 8, 20ms, 4);
  std::vector<std::shared_ptr<Answer>> asked;
  const auto keep_asking = [&] {
    std::erase_if(asked, [&](const auto& answer) {
      if (answer->done()) {
        EXPECT_EQ(answer->tokens(), sharded_.greedy);
      }
      return answer->over();
    });
    while (asked.size() < 12) {
      asked.push_back(ask(kSharded));
    }
    return runs_on(system, 0) && runs_on(system, 2);
  };
  EXPECT_TRUE(system.run_until(keep_asking));
  for (const auto& answer : asked) {
    expect_right(answer, sharded_);
  }
}

TEST_F(Groups, UnloadingEmptiesAllItsDevices) {
  LiveSystem& system = make(2, 2, 4);
  expect_right(ask(kSharded), sharded_);
  bool unloaded = false;
  system.system().unload(system.model(kSharded).id,
                         core::EvictionReason::kOperator,
                         [&](const Result<void>& done) { unloaded = done.has_value(); });
  ASSERT_TRUE(system.run_until([&] { return unloaded; }));
  ASSERT_TRUE(system.run_until([&] {
    const std::vector<core::DeviceStatus> devices = system.system().devices();
    return devices[0].usage.free == devices[0].usage.total &&
           devices[1].usage.free == devices[1].usage.total;
  }));
}

/// Two sharded models on the same two devices.
class TwoGroups : public Groups {
 protected:
  /// With memory for the weights of both, and so many pages of KV.
  LiveSystem& make_two(std::int64_t kv_pages, Duration pace = {}) {
    config::Config config = small_host(0, 2);
    std::int64_t images = 0;
    std::int64_t workspace = 0;
    for (const char* name : {kSharded, kOtherSharded}) {
      add_golden(config, name);
      config::ModelConfig& model = config.models.back();
      model.tensor_parallel = 2;
      const policy::Footprint need = footprint_of(config, model);
      images += need.image_pages;
      workspace = std::max(workspace, need.overhead_pages);
    }
    for (config::DeviceConfig& device : config.devices) {
      device.memory = static_cast<std::uint64_t>(images + workspace + kv_pages) * kPageBytes;
      device.pace.step = pace;
    }
    system_.emplace(config);
    HEDDLE_CHECK(!system_->failure().has_value());
    return *system_;
  }
  static policy::Footprint footprint_of(const config::Config& config,
                                        const config::ModelConfig& model) {
    const auto shards = agent::open_host_shards(model.path,
                                                config.directory,
                                                model.dtype,
                                                {.page_bytes = kPageBytes, .max_batch_tokens = 16},
                                                2);
    HEDDLE_CHECK(shards.has_value());
    return shards->front().footprint;
  }
  std::shared_ptr<Answer> ask_other() {
    return system_->ask(kOtherSharded, prompt_of(other_), std::ssize(other_.greedy));
  }
  static std::uint64_t all(const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }

  const engine::Golden other_ = engine::read_golden(kOtherSharded);
};

TEST_F(TwoGroups, WithMemoryForBothTheyRunAtOnceAndNobodyLeaves) {
  LiveSystem& system = make_two(200);
  for (int turn = 0; turn < 3; ++turn) {
    expect_right(ask(kSharded), sharded_);
    expect_right(ask_other(), other_);
  }
  std::vector<std::pair<std::shared_ptr<Answer>, const engine::Golden*>> asked;
  for (int i = 0; i < 12; ++i) {
    asked.emplace_back(ask(kSharded), &sharded_);
    asked.emplace_back(ask_other(), &other_);
  }
  for (const auto& [answer, golden] : asked) {
    expect_right(answer, *golden);
    EXPECT_EQ(answer->record().restarts, 0);
  }
  for (const char* model : {kSharded, kOtherSharded}) {
    const core::ModelStatus status = system.model(model);
    EXPECT_EQ(all(status.loads), 1U) << model;
    EXPECT_EQ(all(status.evictions), 0U) << model;
    EXPECT_EQ(status.step_backs, 0U) << model;
    EXPECT_EQ(status.residency, core::Residency::kWarm) << model;
  }
}

// A request needs 2 pages of the first and 1 of the second, of which shares hold one more.
TEST_F(TwoGroups, WithMemoryForKvOfOneTheyStepBackByTurns) {
  LiveSystem& system = make_two(3);
  for (int turn = 0; turn < 4; ++turn) {
    expect_right(ask(kSharded), sharded_);
    expect_right(ask_other(), other_);
  }
  EXPECT_GE(system.model(kSharded).step_backs + system.model(kOtherSharded).step_backs, 3U);
  for (const char* model : {kSharded, kOtherSharded}) {
    EXPECT_EQ(all(system.model(model).loads), 1U) << model;
    EXPECT_EQ(all(system.model(model).evictions), 0U) << model;
  }
}

TEST_F(TwoGroups, AnswersOfBothGoOnWhicheverWorkerIsKilled) {
  for (const DeviceId dies : {DeviceId(0), DeviceId(1)}) {
    SCOPED_TRACE(testing::Message() << "killed on device " << dies.value());
    LiveSystem& system = make_two(200, 3ms);
    const auto first = ask(kSharded);
    const auto second = ask_other();
    bool killed = false;
    second->on_news = [&] {
      if (!killed && first->tokens().size() >= 2 && second->tokens().size() >= 3) {
        killed = true;
        const int pid = system.system().worker_pid(dies);
        HEDDLE_CHECK(pid > 0 && ::kill(pid, SIGKILL) == 0);
      }
    };
    expect_right(first, sharded_);
    expect_right(second, other_);
    EXPECT_TRUE(killed);
  }
}

TEST_F(Groups, HeadsThatCannotBeDividedAreAnErrorThatSaysSo) {
  make(4, 4, 4);  // kSharded has two key-value heads.
  const auto answer = ask(kSharded);
  ASSERT_TRUE(system_->finish(*answer));
  ASSERT_TRUE(answer->error().has_value());
  EXPECT_NE(answer->error()->message.find("heads"), std::string::npos) << answer->error()->message;
}

}  // namespace
}  // namespace heddle::tests
