#include "core/serving.h"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

TEST(Reasons, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kEvictionReasons; ++i) {
    names.insert(name(static_cast<EvictionReason>(i)));
  }
  EXPECT_EQ(names.size(), kEvictionReasons);
  EXPECT_FALSE(names.contains("?"));
  EXPECT_EQ(name(LoadReason::kRequest), "request");
  EXPECT_EQ(name(LoadReason::kOperator), "operator");
}

TEST(Incidents, TellWhereARequestGoesOnThatWasTakenAway) {
  const auto at = [](int moment) { return Instant(Duration(moment)); };
  std::vector<Incident> incidents;
  note_resumed(incidents, at(1), DeviceId(1));
  EXPECT_TRUE(incidents.empty()) << "it is sent for the first time";
  note(incidents, {.at = at(2), .kind = IncidentKind::kLost, .device = DeviceId(1)});
  note_resumed(incidents, at(3), DeviceId(2));
  note_resumed(incidents, at(4), DeviceId(2));
  ASSERT_EQ(incidents.size(), 2U);
  EXPECT_EQ(incidents[1],
            (Incident{.at = at(3), .kind = IncidentKind::kResumed, .device = DeviceId(2)}));
}

TEST(Incidents, AreOfABoundedNumberAndHaveNamesOfTheirOwn) {
  std::vector<Incident> incidents(1000, Incident{});
  note(incidents, {});
  EXPECT_EQ(incidents.size(), 1000U);
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(IncidentKind::kAwoken); ++kind) {
    names.insert(name(static_cast<IncidentKind>(kind)));
  }
  EXPECT_EQ(names.size(), 7U);
  EXPECT_FALSE(names.contains("?"));
}

TEST(RequestTimes, KeepTheirOrderWhenAWorkerDies) {
  const auto at = [](int moment) { return Instant(Duration(moment)); };
  RequestTimes times{.arrived = at(1)};
  times.note_load(at(2));
  times.note_dispatch(at(3));
  times.note_load(at(4));  // The worker died, and the next one does not have the model yet.
  EXPECT_EQ(times.load_began, at(2));
  times.note_dispatch(at(5));
  EXPECT_EQ(times.dispatched, at(5));
  times.first_token = at(6);
  times.note_load(at(7));
  times.note_dispatch(at(8));
  EXPECT_EQ(times.load_began, at(2));
  EXPECT_EQ(times.dispatched, at(5)) << "it was under way by then";
}

}  // namespace
}  // namespace heddle::core
