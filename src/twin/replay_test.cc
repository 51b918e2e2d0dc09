#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/codec.h"
#include "twin/test_world.h"

namespace heddle::twin {
namespace {

using core::AgentCore;
using core::ManagerCore;
using core::WorkerCore;

/// The log of a core: each event, then what the core wanted.
template <class Event, class Command>
std::string write_log(const CoreRecord<Event, Command>& record) {
  std::string log;
  for (const auto& step : record) {
    log += core::log_entry(step.at, step.event, step.commands);
  }
  return log;
}

/// `core` has heard nothing yet.
template <class Core, class Event, class Command>
void expect_replay(Core core, const CoreRecord<Event, Command>& record) {
  const auto events = core::replay(core, write_log(record));
  ASSERT_TRUE(events) << events.error().message;
  EXPECT_EQ(*events, std::ssize(record));
}

TEST(Replay, OfARunGivesIdenticalCommands) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const test::WorldOptions options{
        .seed = seed, .deaths = 2, .read_failures = 2, .cancels = true, .admin = true};
    test::World world(options);
    world.run();
    const Twin& twin = world.twin();
    expect_replay(ManagerCore(), twin.manager_record());
    expect_replay(AgentCore(test::agent_options(options)), twin.agent_record());
    for (const auto& life : twin.lives()) {
      expect_replay(WorkerCore(life->options()), life->record());
    }
  }
}

TEST(Replay, NoticesACommandThatIsMissingOrOther) {
  test::World world({.seed = 3, .requests = 5});
  world.run();
  const std::string log = write_log(world.twin().manager_record());
  const std::size_t command = log.find("{\"command\":{\"LoadOn\"");
  ASSERT_NE(command, std::string::npos);
  const std::size_t end = log.find('\n', command) + 1;

  ManagerCore missing;
  const auto without = core::replay(missing, log.substr(0, command) + log.substr(end));
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, Code::kFailedPrecondition);

  ManagerCore extra;
  const std::string line = log.substr(command, end - command);
  EXPECT_FALSE(core::replay(extra, log.substr(0, end) + line + log.substr(end)));
}

}  // namespace
}  // namespace heddle::twin
