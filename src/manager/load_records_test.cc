#include "manager/load_records.h"

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "history/traffic.h"

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

TEST_F(LoadRecordsTest, RequestsAreCountedFromOneRunToTheNext) {
  for (int run = 0; run < 2; ++run) {
    LoadRecords records;
    records.open(directory_, 24h, 24h);  // No window ends while this runs, but at midnight.
    records.count_arrival("a");
    records.count_arrival("a");
    records.count_end("a", 30, 40);
  }
  const auto read = history::read_traffic({directory_});
  ASSERT_TRUE(read) << read.error().message;
  history::Traffic all;
  for (const auto& [window, models] : read->windows) {
    all.add(models.at("a"));
  }
  EXPECT_EQ(all.arrivals, 4);
  EXPECT_EQ(all.finished, 2);
  EXPECT_EQ(all.prompt_tokens, 60);
  EXPECT_EQ(all.answer_squares, 3200);
}

TEST_F(LoadRecordsTest, WithoutADirectoryNothingIsKeptForTheNextRun) {
  LoadRecords records;
  records.open("", 60s, 24h);
  records.note("a", now_ - 1, {.mean = 1, .peak = 2});
  records.save();
  EXPECT_TRUE(records.recall("a", ModelId(1))) << "in this run it is known";
}

/// What another manager measured.
history::LoadBook others(Duration length = 60s) {
  history::LoadBook book;
  book.begin(length, history::LoadBook::kWindowsMost);
  return book;
}

TEST_F(LoadRecordsTest, LearnsWhatOthersHaveMeasured) {
  {
    LoadRecords records;
    records.open(directory_, 60s, 24h);
    records.note("a", now_ - 3, {.mean = 2, .peak = 2});
    records.note("a", now_ - 2, {.mean = 1, .peak = 2});
    history::LoadBook heard = others();
    heard.put("a", now_ - 5, {.mean = 4, .peak = 4});
    heard.put("a", now_ - 3, {.mean = 1, .peak = 8});
    heard.put("a", now_ - 2, {.mean = 3, .peak = 3});
    heard.put("b", now_ - 2, {.mean = 1, .peak = 1});
    const Learnt learnt = records.learn(heard);
    EXPECT_EQ(learnt.windows, 3U);
    EXPECT_EQ(learnt.ahead, 0U);
    EXPECT_EQ(learnt.models, (std::set<std::string>{"a", "b"}));
    EXPECT_EQ(records.learn(heard).windows, 0U) << "that is known now";
  }
  LoadRecords records;
  records.open(directory_, 60s, 24h);
  const auto recalled = records.recall("a", ModelId(1));
  ASSERT_TRUE(recalled);
  ASSERT_EQ(recalled->windows.size(), 3U) << "it is written";
  EXPECT_EQ(recalled->windows[0].second.mean, 4);
  EXPECT_EQ(recalled->windows[1].second.mean, 2) << "the greater holds";
  EXPECT_EQ(recalled->windows[2].second.mean, 3) << "also of what was not written yet";
  EXPECT_TRUE(records.recall("b", ModelId(2)));
}

// Managers' clocks may differ by hours; a window that is not over cannot have been measured.
TEST_F(LoadRecordsTest, PassesOverWindowsThatHaveNotEnded) {
  LoadRecords records;
  records.open("", 60s, 24h);
  history::LoadBook heard = others();
  heard.put("a", now_ - 2, {.mean = 4, .peak = 4});
  heard.put("a", now_ + 60, {.mean = 4, .peak = 4});
  heard.put("b", now_ + 61, {.mean = 4, .peak = 4});
  heard.put("b", now_ + 100'000, {.mean = 4, .peak = 4});
  const Learnt learnt = records.learn(heard);
  EXPECT_EQ(learnt.windows, 1U);
  EXPECT_EQ(learnt.ahead, 3U);
  EXPECT_EQ(records.recall("a", ModelId(1))->windows.size(), 1U);
  EXPECT_FALSE(records.recall("b", ModelId(2)));
}

TEST_F(LoadRecordsTest, PassesOverWindowsOfAnotherLength) {
  LoadRecords records;
  records.open("", 60s, 24h);
  history::LoadBook heard = others(30s);
  heard.put("a", 5, {.mean = 4, .peak = 4});
  EXPECT_EQ(records.learn(heard).windows, 0U);
  EXPECT_FALSE(records.recall("a", ModelId(1)));
}

TEST_F(LoadRecordsTest, RecallsInSlices) {
  LoadRecords records;
  records.open("", 60s, 24h);
  for (std::int64_t window = now_ - 10; window < now_; ++window) {
    records.note("a", window, {.mean = 1, .peak = 1});
  }
  const auto slice = records.recall("a", ModelId(1), now_ - 4, 3);
  ASSERT_TRUE(slice);
  ASSERT_EQ(slice->windows.size(), 3U);
  EXPECT_EQ(slice->windows.front().first, now_ - 4);
  EXPECT_EQ(records.recall("a", ModelId(1), now_ - 1, 3)->windows.size(), 1U);
  EXPECT_FALSE(records.recall("a", ModelId(1), now_, 3));
}

// A manager that stands by opens them, and again when it leads.
TEST_F(LoadRecordsTest, OpenedAgainTheyAreAsTheyWere) {
  LoadRecords records;
  records.open("", 60s, 24h);
  records.note("a", now_ - 2, {.mean = 1, .peak = 1});
  records.open("", 60s, 24h);
  EXPECT_TRUE(records.recall("a", ModelId(1)));
  records.open("", 30s, 24h);
  EXPECT_FALSE(records.recall("a", ModelId(1))) << "windows of another length";
}

TEST_F(LoadRecordsTest, TellsWhoListens) {
  LoadRecords records;
  records.open("", 60s, 24h);
  records.note("a", 5, {});
  records.tell_learnt({"a"});  // Nobody listens yet.
  std::vector<std::string> noted;
  records.on_noted([&](const std::string& model, const history::WindowLoad& ended) {
    noted.push_back(model + std::to_string(ended.window));
  });
  std::set<std::string> recalled;
  records.on_recall([&](const std::set<std::string>& models) { recalled = models; });
  records.note("a", 6, {.mean = 1, .peak = 1});
  records.tell_learnt({"b"});
  EXPECT_EQ(noted, std::vector<std::string>{"a6"});
  EXPECT_EQ(recalled, std::set<std::string>{"b"});
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
