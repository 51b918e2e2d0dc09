// What decides in a server, in a prediction of the lab and in a simulation is one manager: the log
// of each, said to a fresh one, gives the same commands.

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "core/codec.h"
#include "engine/test_host.h"
#include "live_system.h"
#include "sim/planes/live.h"
#include "sim/test_world.h"
#include "twin/test_world.h"

#include <unistd.h>

namespace heddle::tests {
namespace {

/// Two models take turns on a device that holds one.
std::string log_of_server() {
  const std::string path = testing::TempDir() + "one-manager-" + std::to_string(::getpid());
  config::Config config = small_host(0);
  add_golden(config, "qwen3-window");
  add_golden(config, "llama-mha-f32");
  config.devices[0].memory = memory_for_one(config, 4);
  config.event_log = path;
  {
    LiveSystem system(config);
    EXPECT_FALSE(system.failure().has_value());
    const engine::Golden golden = engine::read_golden("qwen3-window");
    const std::vector<TokenId> prompt(golden.input_ids.begin(), golden.input_ids.begin() + 16);
    for (const char* model : {"qwen3-window", "llama-mha-f32", "qwen3-window"}) {
      const auto answer = system.ask(model, prompt, 4);
      EXPECT_TRUE(system.finish(*answer) && answer->done()) << model;
    }
  }
  std::stringstream text;
  text << std::ifstream(path + ".manager").rdbuf();
  return text.str();
}

/// A random load with a death, as the lab predicts one.
std::string log_of_prediction() {
  twin::test::World world({.seed = 1, .deaths = 1});
  world.run();
  std::string log;
  for (const auto& step : world.twin().manager_record()) {
    log += core::log_entry(step.at, step.event, step.commands);
  }
  return log;
}

/// Six models take turns on two GPUs of two servers each.
std::string log_of_simulation() {
  const std::map<std::string, std::string> values;
  sim::Flags flags(values);
  sim::LivePlane plane(flags);
  std::string log;
  plane.listen([&](Instant at, const auto& event, const auto& commands) {
    log += core::log_entry(at, event, commands);
  });
  std::vector<sim::TraceRow> rows;
  for (std::uint64_t i = 0; i < 60; ++i) {
    rows.push_back(sim::row_at(1 + 0.7 * static_cast<double>(i), i * i % 6, 256, 64));
  }
  const sim::TestRun run =
      sim::run_world(sim::test_cluster(2, 2), sim::test_models(6), plane, rows);
  EXPECT_EQ(run.counts.completed, 60);
  return log;
}

TEST(OneManager, DecidesInAServerAPredictionAndASimulation) {
  const std::pair<const char*, std::string> logs[] = {
      {"server", log_of_server()},
      {"prediction", log_of_prediction()},
      {"simulation", log_of_simulation()},
  };
  for (const auto& [where, log] : logs) {
    SCOPED_TRACE(where);
    core::ManagerCore manager;
    const Result<std::int64_t> replayed = core::replay(manager, log);
    ASSERT_TRUE(replayed) << replayed.error().message;
    EXPECT_GT(*replayed, 20);
    manager.check_invariants();
    // One command that is missing is noticed.
    const std::size_t command = log.find("{\"command\"");
    ASSERT_NE(command, std::string::npos);
    std::string forged = log;
    forged.erase(command, log.find('\n', command) + 1 - command);
    core::ManagerCore doubtful;
    EXPECT_FALSE(core::replay(doubtful, forged));
  }
}

}  // namespace
}  // namespace heddle::tests
