#include "core/hearing.h"

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

/// Answers a number with all smaller ones.
struct Countdown {
  void step(Instant /*now*/, int event, std::vector<std::variant<int>>& commands) {
    for (int i = 0; i < event; ++i) {
      commands.emplace_back(i);
    }
  }
};

TEST(Hearing, HearsWhatFollowsAfterwardsAndInOrder) {
  Countdown core;
  Hearing<Countdown, int, std::variant<int>> hearing;
  std::string seen;
  const auto now = [] { return Instant{}; };
  const auto on_step = [&](Instant /*at*/, int event, const auto& commands) {
    seen += "(" + std::to_string(event) + ":" + std::to_string(commands.size());
  };
  bool nested = true;
  std::function<void(int&)> execute = [&](int& command) {
    seen += " " + std::to_string(command);
    nested = hearing.hear(core, command, now, on_step, execute);
  };
  EXPECT_TRUE(hearing.hear(core, 2, now, on_step, execute));
  EXPECT_FALSE(nested);
  EXPECT_EQ(seen, "(2:2 0 1(0:0(1:1 0(0:0");
}

}  // namespace
}  // namespace heddle::core
