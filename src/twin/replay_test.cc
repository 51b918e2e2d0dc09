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
template <class Core, class Event, class Command>
std::string write_log(Core core, const CoreRecord<Event, Command>& record) {
  std::string log;
  for (const auto& entry : record.heard) {
    log += core::event_line<Event>(entry.at, entry.event) + "\n";
    std::vector<Command> commands;
    core.step(entry.at, entry.event, commands);
    for (const Command& command : commands) {
      log += core::command_line<Command>(command) + "\n";
    }
  }
  return log;
}

template <class Command>
std::string lines_of(const std::vector<Command>& commands) {
  std::string lines;
  for (const Command& command : commands) {
    lines += core::command_line<Command>(command) + "\n";
  }
  return lines;
}

std::string commands_of(const std::string& log) {
  std::string lines;
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = log.find('\n', at) + 1;
    if (log.compare(at, 10, "{\"command\"") == 0) {
      lines += log.substr(at, end - at);
    }
    at = end;
  }
  return lines;
}

/// `make` makes the core as it was before it heard anything.
template <class Make, class Event, class Command>
void expect_replay(const Make& make, const CoreRecord<Event, Command>& record) {
  const std::string log = write_log(make(), record);
  EXPECT_EQ(commands_of(log), lines_of(record.wanted));
  auto core = make();
  const auto events = core::replay(core, log);
  ASSERT_TRUE(events) << events.error().message;
  EXPECT_EQ(*events, std::ssize(record.heard));
}

TEST(Replay, OfARunGivesIdenticalCommands) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const test::WorldOptions options{
        .seed = seed, .deaths = 2, .read_failures = 2, .cancels = true, .admin = true};
    test::World world(options);
    world.run();
    const Twin& twin = world.twin();
    expect_replay([] { return ManagerCore(); }, twin.manager_record());
    expect_replay([&] { return AgentCore(test::World::agent_options(options)); },
                  twin.agent_record());
    for (const auto& life : twin.lives()) {
      expect_replay([&] { return WorkerCore(life->options()); }, life->record());
    }
  }
}

TEST(Replay, NoticesACommandThatIsMissingOrOther) {
  test::World world({.seed = 3, .requests = 5});
  world.run();
  const std::string log = write_log(ManagerCore(), world.twin().manager_record());
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
