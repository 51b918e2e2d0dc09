// What goes wrong on real workers, and that nobody's answer suffers.

#include <cerrno>
#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "engine/test_host.h"
#include "live_system.h"

#include <signal.h>
#include <unistd.h>

namespace heddle::tests {
namespace {

using namespace std::chrono_literals;

constexpr DeviceId kFirst{0};

std::vector<TokenId> prompt_of(const engine::Golden& golden) {
  return {golden.input_ids.begin(), golden.input_ids.begin() + 16};
}

/// Kills the worker, as a bug or the kernel would.
/// By somebody else, unless `signal` is what a fault of its own ends with.
void kill_worker(LiveSystem& system, DeviceId device = kFirst, int signal = SIGKILL) {
  const int pid = system.system().worker_pid(device);
  ASSERT_GT(pid, 0);
  ASSERT_EQ(::kill(pid, signal), 0);
}

class Failures : public testing::Test {
 protected:
  /// A system in which only one of two models fits.
  LiveSystem& make(const std::function<void(config::Config&)>& change = {}) {
    config::Config config = small_host(0);
    add_golden(config, "qwen3-window");
    add_golden(config, "llama-mha-f32");
    config.devices[0].memory = memory_for_one(config, 4);
    if (change) {
      change(config);
    }
    system_.emplace(config);
    HEDDLE_CHECK(!system_->failure().has_value());
    return *system_;
  }

  std::shared_ptr<Answer> ask(const engine::Golden& golden, const std::string& model) {
    return system_->ask(model, prompt_of(golden), std::ssize(golden.greedy));
  }

  const engine::Golden qwen_ = engine::read_golden("qwen3-window");
  const engine::Golden llama_ = engine::read_golden("llama-mha-f32");
  std::optional<LiveSystem> system_{};
};

TEST_F(Failures, AnIdleWorkerThatDiesIsStartedAgain) {
  LiveSystem& system = make();
  const auto before = ask(qwen_, "qwen3-window");
  ASSERT_TRUE(system.finish(*before));
  kill_worker(system);
  ASSERT_TRUE(system.run_until([&] { return system.system().devices()[0].restarts == 1; }));
  const auto after = ask(qwen_, "qwen3-window");
  ASSERT_TRUE(system.finish(*after));
  ASSERT_TRUE(after->done()) << after->error()->message;
  EXPECT_EQ(after->tokens(), qwen_.greedy);
  EXPECT_EQ(after->record().restarts, 0) << "it was not running when the worker died";
}

TEST_F(Failures, AStreamGoesOnWithTheSameTextWhereverItsWorkerDies) {
  for (std::size_t at = 1; at < qwen_.greedy.size(); at += 3) {
    SCOPED_TRACE(testing::Message() << "killed after token " << at);
    LiveSystem& system = make([](config::Config& config) { config.devices[0].pace.step = 3ms; });
    const auto answer = ask(qwen_, "qwen3-window");
    bool killed = false;
    answer->on_news = [&] {
      if (!killed && answer->tokens().size() >= at) {
        killed = true;
        kill_worker(system);
      }
    };
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_TRUE(answer->done()) << answer->error()->message;
    EXPECT_EQ(answer->tokens(), qwen_.greedy);
    EXPECT_EQ(answer->record().restarts, 1);
  }
}

TEST_F(Failures, SampledStreamsGoOnAsIfNothingHadHappened) {
  spec::SamplingParams params{.temperature = 1.0F, .top_p = 0.9F, .seed = 42};
  params.max_tokens = 30;
  params.ignore_eos = true;
  LiveSystem& calm = make([](config::Config& config) { config.devices[0].pace.step = 1ms; });
  const auto expected = calm.ask("qwen3-window", prompt_of(qwen_), {params, params, params});
  ASSERT_TRUE(calm.finish(*expected));
  LiveSystem& system = make([](config::Config& config) { config.devices[0].pace.step = 1ms; });
  const auto answer = system.ask("qwen3-window", prompt_of(qwen_), {params, params, params});
  answer->on_news = [&, killed = false]() mutable {
    if (!killed && answer->tokens(1).size() >= 10) {
      killed = true;
      kill_worker(system);
    }
  };
  ASSERT_TRUE(system.finish(*answer));
  for (std::uint32_t choice = 0; choice < 3; ++choice) {
    ASSERT_EQ(answer->tokens(choice).size(), 30U);
    EXPECT_EQ(answer->tokens(choice), expected->tokens(choice));
  }
  EXPECT_NE(answer->tokens(0), answer->tokens(1)) << "choices draw differently";
}

TEST_F(Failures, AWorkerThatDiesWhileItLoadsIsAsGoodAsNew) {
  // Slow copies, so that the death falls into the load.
  LiveSystem& system = make([](config::Config& config) {
    config.devices[0].copy = true;
    config.devices[0].load_bandwidth = 200'000;
  });
  ASSERT_TRUE(system.workers_up());
  const auto answer = ask(llama_, "llama-mha-f32");
  ASSERT_TRUE(system.run_until(
      [&] { return system.model("llama-mha-f32").residency != core::Residency::kAbsent; }));
  kill_worker(system);
  ASSERT_TRUE(system.finish(*answer));
  ASSERT_TRUE(answer->done()) << answer->error()->message;
  EXPECT_EQ(answer->tokens(), llama_.greedy);
}

TEST_F(Failures, ARequestUnderWhichWorkersKeepDyingFailsClearly) {
  LiveSystem& system = make([](config::Config& config) { config.devices[0].pace.step = 1ms; });
  const auto answer = ask(qwen_, "qwen3-window");
  int kills = 0;
  answer->on_news = [&] {
    if (kills == answer->record().restarts) {
      ++kills;
      kill_worker(system, kFirst, SIGABRT);
    }
  };
  ASSERT_TRUE(system.finish(*answer));
  ASSERT_TRUE(answer->error().has_value());
  EXPECT_EQ(answer->error()->code, Code::kUnavailable);
  EXPECT_EQ(kills, 3) << "twice in company, once alone";
}

TEST_F(Failures, CancellingFreesTheKvWithinAStep) {
  LiveSystem& system = make([](config::Config& config) { config.devices[0].pace.step = 20ms; });
  const auto kv_held = [&] {
    return system.system().devices()[0].usage.of(ledger::LeaseKind::kKvOwn).held;
  };
  const auto answer = system.ask("qwen3-window", prompt_of(qwen_), 100);
  ASSERT_TRUE(system.run_until([&] { return kv_held() > 0; }));
  const std::size_t heard = answer->tokens().size();
  system.system().cancel(answer->record().id);
  ASSERT_TRUE(system.run_until([&] { return kv_held() == 0; }));
  EXPECT_EQ(answer->tokens().size(), heard) << "a sink hears nothing after cancel()";
  EXPECT_FALSE(answer->over());
  EXPECT_EQ(system.model("qwen3-window").requests_running, 0);
  // A step gives a token: those heard, one that was under way, and no more.
  const auto steps = [&] { return system.system().worker_stats(kFirst).steps; };
  ASSERT_TRUE(system.run_until([&] { return steps() >= heard; }));
  EXPECT_LE(steps(), heard + 2);
}

TEST_F(Failures, AChoiceThatIsFinishedFromOutsideLeavesTheOthersAlone) {
  LiveSystem& system = make([](config::Config& config) { config.devices[0].pace.step = 1ms; });
  spec::SamplingParams params{.temperature = 0.0F};
  params.max_tokens = 20;
  params.ignore_eos = true;
  const auto answer = system.ask("qwen3-window", prompt_of(qwen_), {params, params});
  answer->on_news = [&] {
    if (answer->tokens(0).size() == 5) {
      system.system().finish_choice(answer->record().id, 0, spec::FinishReason::kStop);
    }
  };
  ASSERT_TRUE(system.finish(*answer));
  EXPECT_EQ(answer->tokens(0).size(), 5U);
  EXPECT_EQ(answer->tokens(1).size(), 20U);
  EXPECT_EQ(answer->record().finished[0], spec::FinishReason::kStop);
  EXPECT_EQ(answer->record().finished[1], spec::FinishReason::kLength);
}

TEST_F(Failures, ACheckpointThatVanishesIsAClearErrorAndNobodyElseNotices) {
  const std::filesystem::path copy =
      std::filesystem::path(testing::TempDir()) / ("vanishing-" + std::to_string(::getpid()));
  std::filesystem::copy(engine::golden_directory() / "llama-mha-f32", copy);
  LiveSystem& system = make([&](config::Config& config) { config.models[1].path = copy; });
  std::filesystem::remove_all(copy);
  const auto lost = ask(llama_, "llama-mha-f32");
  const auto fine = ask(qwen_, "qwen3-window");
  ASSERT_TRUE(system.finish(*lost));
  ASSERT_TRUE(lost->error().has_value());
  EXPECT_NE(lost->error()->message.find(copy.string()), std::string::npos)
      << lost->error()->message;
  ASSERT_TRUE(system.finish(*fine));
  EXPECT_EQ(fine->tokens(), qwen_.greedy);
  EXPECT_TRUE(system.model("llama-mha-f32").failure.has_value());
}

TEST_F(Failures, AModelThatIsNotThereIsListedWithItsFailure) {
  LiveSystem& system = make([](config::Config& config) { config.models[1].path = "/no/such"; });
  ASSERT_TRUE(system.model("llama-mha-f32").failure.has_value());
  const auto lost = ask(llama_, "llama-mha-f32");
  EXPECT_FALSE(lost->over()) << "a sink hears nothing from within start()";
  ASSERT_TRUE(system.finish(*lost));
  EXPECT_EQ(lost->error()->code, Code::kNotFound);
}

TEST_F(Failures, MoreMemoryThanTheHostHasIsAClearError) {
  config::Config config = small_host(std::uint64_t{1} << 42U);
  const LiveSystem system(config);
  ASSERT_TRUE(system.failure().has_value());
  EXPECT_EQ(system.failure()->code, Code::kResourceExhausted);
}

TEST_F(Failures, DevicesOfDifferentPageSizesAreAClearError) {
  config::Config config = small_host(std::uint64_t{1} << 20U, 2);
  config.devices[1].page = 2 * kPageBytes;
  const LiveSystem system(config);
  ASSERT_TRUE(system.failure().has_value());
  EXPECT_EQ(system.failure()->message,
            "device cpu1 has pages of 32768 bytes and device cpu0 of 16384; all devices of a host "
            "share one arena and so one page size");
}

TEST_F(Failures, SignalsToTheWorkerAreTheParentsToAnswer) {
  LiveSystem& system = make();
  const auto answer = ask(qwen_, "qwen3-window");
  ASSERT_TRUE(system.run_until([&] { return !answer->tokens().empty(); }));
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    ASSERT_EQ(::kill(system.system().worker_pid(kFirst), number), 0);
  }
  const auto next = ask(qwen_, "qwen3-window");
  ASSERT_TRUE(system.finish(*next));
  EXPECT_EQ(next->tokens(), qwen_.greedy);
  EXPECT_EQ(system.system().devices()[0].restarts, 0U);
}

TEST_F(Failures, NoWorkerOutlivesTheSystem) {
  LiveSystem& system = make();
  ASSERT_TRUE(system.workers_up());
  const int pid = system.system().worker_pid(kFirst);
  system_.reset();
  errno = 0;
  (void)::kill(pid, 0);
  const int error = errno;
  EXPECT_EQ(error, ESRCH);
}

}  // namespace
}  // namespace heddle::tests
