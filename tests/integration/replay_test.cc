// The log of a run, deaths and all, replayed through the cores gives the same commands.

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "core/codec.h"
#include "engine/test_host.h"
#include "host/setup.h"
#include "live_system.h"

#include <signal.h>
#include <unistd.h>

namespace heddle::tests {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Several models, a cancelled request, an unload, a load that fails, a death, and a prompt whose
/// beginning is cached.
void live_a_little(LiveSystem& system) {
  const engine::Golden golden = engine::read_golden("qwen3-window");
  const std::vector<TokenId> prompt(golden.input_ids.begin(), golden.input_ids.begin() + 16);
  bool killed = false;
  const auto streaming = system.ask("qwen3-window", prompt, 40);
  streaming->on_news = [&] {
    if (!killed && streaming->tokens().size() == 10) {
      killed = true;
      (void)::kill(system.system().worker_pid(DeviceId(0)), SIGKILL);
    }
  };
  const auto other = system.ask("llama-mha-f32", prompt, 10);
  const auto unwanted = system.ask("qwen3-window", prompt, 40);
  ASSERT_TRUE(system.run_until([&] { return unwanted->tokens().size() > 2; }));
  system.system().cancel(unwanted->record().id);
  for (const auto& answer : {streaming, other}) {
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_TRUE(answer->done());
  }
  bool unloaded = false;
  system.system().unload(system.model("llama-mha-f32").id,
                         core::EvictionReason::kOperator,
                         [&](Result<void>) { unloaded = true; });
  ASSERT_TRUE(system.run_until([&] { return unloaded; }));
  const std::vector<TokenId> longer(golden.input_ids.begin(), golden.input_ids.begin() + 40);
  for (int i = 0; i < 2; ++i) {
    const auto answer = system.ask("qwen3-window", longer, 3);
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_TRUE(answer->done());
    EXPECT_EQ(answer->cached_tokens() > 0, i > 0);
  }
}

TEST(Replay, OfALiveRunGivesTheSameCommands) {
  const std::string log = testing::TempDir() + "run-" + std::to_string(::getpid());
  config::Config config = small_host(0);
  add_golden(config, "qwen3-window");
  add_golden(config, "llama-mha-f32");
  config.devices[0].memory = memory_for_one(config, 4);
  config.devices[0].pace.step = std::chrono::milliseconds(1);
  config.event_log = log;
  {
    LiveSystem system(config);
    ASSERT_FALSE(system.failure().has_value()) << system.failure()->message;
    live_a_little(system);
  }
  core::ManagerCore manager;
  const std::string manager_log = contents(log + ".manager");
  const Result<std::int64_t> of_manager = core::replay(manager, manager_log);
  ASSERT_TRUE(of_manager) << of_manager.error().message;
  EXPECT_GT(*of_manager, 20);
  manager.check_invariants();

  const auto setup = host::agent_setup(config, host::choose_batch_tokens(config));
  core::AgentCore agent(agent::core_options(*setup));
  const Result<std::int64_t> of_agent = core::replay(agent, contents(log + ".agent"));
  ASSERT_TRUE(of_agent) << of_agent.error().message;
  EXPECT_GT(*of_agent, 20);
  agent.check_invariants();

  // The first life was killed, perhaps in the middle of a line: all but its last event, and as much
  // as the log's thread had come to write by then. What the second wanted is complete but for what
  // it said when the process ended.
  const auto rows = static_cast<std::int64_t>(config.devices[0].memory / kPageBytes);
  for (const std::uint64_t epoch : {1U, 2U}) {
    const std::string text = contents(log + ".worker.0." + std::to_string(epoch));
    const std::string whole = text.substr(0, text.rfind("{\"at\""));
    core::WorkerCore worker({.device = DeviceId(0),
                             .epoch = WorkerEpoch(epoch),
                             .pages = rows,
                             .step = setup->devices[0].step,
                             .prefix_cache = setup->devices[0].prefix_cache});
    const Result<std::int64_t> of_worker = core::replay(worker, whole);
    ASSERT_TRUE(of_worker) << "epoch " << epoch << ": " << of_worker.error().message;
    EXPECT_GT(*of_worker, epoch == 1 ? 0 : 20);
  }

  // A log of something else does not pass: the first command is missing here.
  const std::size_t first = manager_log.find("{\"command\"");
  ASSERT_NE(first, std::string::npos);
  std::string forged = manager_log;
  forged.erase(first, forged.find('\n', first) + 1 - first);
  core::ManagerCore doubtful;
  EXPECT_FALSE(core::replay(doubtful, forged));
}

}  // namespace
}  // namespace heddle::tests
