#include "gateway/device_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

TEST(DeviceHistory, IsToldOldestFirst) {
  DeviceHistory history;
  EXPECT_EQ(history.json(Instant(9s)), R"({"samples":[]})");
  history.keep(Instant(1s), "{}");
  history.keep(Instant(3s), R"({"a":1})");
  EXPECT_EQ(history.json(Instant(4s)),
            R"({"samples":[{"age_ms":3000,"memory":{}},{"age_ms":1000,"memory":{"a":1}}]})");
}

TEST(DeviceHistory, KeepsMinutesAndSoManyBytes) {
  DeviceHistory history;
  history.keep(Instant(0s), R"("old")");
  history.keep(Instant(DeviceHistory::kSpan + 1ms), R"("new")");
  EXPECT_THAT(history.json(Instant(DeviceHistory::kSpan + 1ms)), Not(HasSubstr("old")));
  const std::string large(DeviceHistory::kBytesMost / 2 + 1, ' ');
  history.keep(Instant(1h), "1" + large);
  history.keep(Instant(1h), "2" + large);
  EXPECT_THAT(history.json(Instant(1h)), Not(HasSubstr("\"memory\":1")));
  EXPECT_THAT(history.json(Instant(1h)), HasSubstr("\"memory\":2"));
}

}  // namespace
}  // namespace heddle::gateway
