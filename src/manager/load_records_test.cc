#include "manager/load_records.h"

#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/clock.h"

#include <unistd.h>

namespace heddle::manager {
namespace {

using namespace std::chrono_literals;

class LoadRecordsTest : public testing::Test {
 protected:
  LoadRecordsTest() { std::filesystem::remove_all(directory_); }
  ~LoadRecordsTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_ =
      (std::filesystem::temp_directory_path() / ("load_records_" + std::to_string(::getpid())))
          .string();
  /// The window under way.
  std::int64_t now_ = policy::Calendar{.window = 60s}.window_at(
      Instant(std::chrono::system_clock::now().time_since_epoch()));
};

TEST_F(LoadRecordsTest, RemembersFromOneRunToTheNext) {
  {
    LoadRecords records;
    records.open(directory_, 60s, 24h);
    EXPECT_FALSE(records.recall("a", ModelId(1))) << "nothing was measured";
    records.note("a", now_ - 3, {.mean = 1, .peak = 2});
    records.note("b", now_ - 3, {.mean = 4, .peak = 4});
    records.note("a", now_ - 2, {.mean = 3, .peak = 5});
  }
  LoadRecords records;
  records.open(directory_, 60s, 24h);
  const auto recalled = records.recall("a", ModelId(7));
  ASSERT_TRUE(recalled);
  EXPECT_EQ(recalled->model, ModelId(7));
  ASSERT_EQ(recalled->windows.size(), 2U);
  EXPECT_EQ(recalled->windows[0], (std::pair{now_ - 3, policy::Load{.mean = 1, .peak = 2}}));
  EXPECT_EQ(recalled->windows[1], (std::pair{now_ - 2, policy::Load{.mean = 3, .peak = 5}}));
  records.note("a", now_ - 1, {.mean = 1, .peak = 1});
  EXPECT_EQ(records.recall("a", ModelId(10))->windows.size(), 3U) << "a model of other weights";
  EXPECT_TRUE(records.recall("b", ModelId(9))) << "a model that comes by a reload";
  EXPECT_FALSE(records.recall("c", ModelId(8)));
}

TEST_F(LoadRecordsTest, WithoutADirectoryNothingIsKeptForTheNextRun) {
  LoadRecords records;
  records.open("", 60s, 24h);
  records.note("a", now_ - 1, {.mean = 1, .peak = 2});
  records.save();
  EXPECT_TRUE(records.recall("a", ModelId(1))) << "in this run it is known";
}

TEST_F(LoadRecordsTest, TheOffsetTurnsSteadyTimeIntoUtc) {
  LoadRecords records;
  records.open("", 300s, 24h);
  EXPECT_TRUE(records.clock_moved()) << "nobody has asked yet";
  const Duration utc = steady_now().time_since_epoch() + records.take_clock_offset();
  EXPECT_FALSE(records.clock_moved());
  const Duration now = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_LT(std::chrono::abs(now - utc), 10s);
}

}  // namespace
}  // namespace heddle::manager
