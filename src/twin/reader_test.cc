#include "twin/reader.h"

#include <variant>

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kModel{1};

/// Reads a part of 100 bytes in 100 ms.
struct Rig {
  Agenda agenda{};
  Faults faults;
  std::vector<std::pair<Instant, core::AgentEvent>> told{};
  Reader reader{{.read = 1000, .read_part = 100},
                agenda,
                faults,
                nullptr,
                [this](const core::AgentEvent& event) { told.emplace_back(agenda.now(), event); }};

  explicit Rig(const FaultPlan& plan = {}) : faults(plan) {}
  void read() { reader.start({.model = kModel}, 250); }
  void run() {
    while (agenda.advance()) {
    }
  }
  [[nodiscard]] const std::optional<Error>& error() const {
    return std::get<core::ReadEnded>(told.back().second).error;
  }
};

TEST(Reader, TellsAfterEachPart) {
  Rig rig;
  rig.read();
  rig.run();
  ASSERT_EQ(rig.told.size(), 3U);
  EXPECT_EQ(rig.told[0].first, Instant(100ms));
  EXPECT_EQ(std::get<core::ReadProgress>(rig.told[1].second).bytes, 200U);
  EXPECT_EQ(rig.told[2].first, Instant(250ms));
  EXPECT_FALSE(rig.error());
}

TEST(Reader, StopsAfterThePartThatItReads) {
  Rig rig;
  rig.read();
  rig.agenda.at(Instant(150ms), [&] { rig.reader.cancel(kModel); });
  rig.run();
  EXPECT_EQ(rig.told.back().first, Instant(200ms));
  EXPECT_EQ(rig.error()->code, Code::kCancelled);
}

TEST(Reader, FailsAsPlanned) {
  Rig rig({.read_failures = 1});
  rig.read();
  rig.run();
  EXPECT_EQ(rig.told.back().first, Instant(200ms));
  EXPECT_EQ(rig.error()->code, Code::kUnavailable);
  rig.read();
  rig.run();
  EXPECT_FALSE(rig.error());
}

TEST(Reader, IsLateAsPlanned) {
  Rig rig({.seed = 1, .late = {.read = 50ms}});
  rig.read();
  rig.run();
  EXPECT_GT(rig.told.back().first, Instant(250ms));
  EXPECT_LE(rig.told.back().first, Instant(400ms));
}

}  // namespace
}  // namespace heddle::twin
