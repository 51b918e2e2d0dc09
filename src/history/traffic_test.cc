#include "history/traffic.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "history/database.h"
#include "history/history_store.h"

#include <unistd.h>

namespace heddle::history {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

Traffic of(std::int64_t arrivals, std::int64_t prompt, std::int64_t answer) {
  Traffic traffic;
  for (std::int64_t i = 0; i < arrivals; ++i) {
    traffic.arrived();
    traffic.ended(prompt, answer);
  }
  return traffic;
}

class TrafficTest : public testing::Test {
 protected:
  [[nodiscard]] std::string file() const { return directory_ + "/" + HistoryStore::kFile; }
  void run(const char* statements) const {
    auto database = Database::open(file(), Database::Mode::kReadWrite);
    ASSERT_TRUE(database) << database.error().message;
    const Result<void> done = database->run(statements);
    ASSERT_TRUE(done) << done.error().message;
  }
  /// What reading that says is wrong.
  [[nodiscard]] static std::string problem(const std::vector<std::string>& places) {
    const auto read = read_traffic(places);
    return read ? "nothing" : read.error().message;
  }

  const TempDirectory home_{};
  const std::string directory_ = home_.path().string();
};

TEST_F(TrafficTest, WhatIsCountedIsAddedUpAndRead) {
  {
    const auto store = HistoryStore::open(directory_, 300s);
    store->count(7, {{"chat", of(2, 100, 10)}, {"code", of(1, 50, 5)}});
    store->count(7, {{"chat", of(1, 400, 40)}});
    store->flush();
    const auto read = read_traffic({directory_});
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->windows.at(7).at("chat").arrivals, 3) << "while the server has it open";
  }
  HistoryStore::open(directory_, 300s)->count(9, {{"chat", of(1, 1, 1)}});
  const auto read = read_traffic({file()});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->window, 300s);
  ASSERT_EQ(read->windows.size(), 2U);
  Traffic chat = of(2, 100, 10);
  chat.add(of(1, 400, 40));
  EXPECT_EQ(read->windows.at(7).at("chat"), chat);
  EXPECT_EQ(chat.prompt_tokens, 600);
  EXPECT_EQ(chat.prompt_squares, 2 * 1e4 + 16e4);
  EXPECT_EQ(read->windows.at(9).at("chat"), of(1, 1, 1));
}

TEST_F(TrafficTest, FilesOfSeveralManagersAreAddedUp) {
  HistoryStore::open(directory_ + "/a", 300s)->count(7, {{"chat", of(1, 1, 1)}});
  HistoryStore::open(directory_ + "/b", 300s)->count(7, {{"chat", of(1, 1, 1)}});
  HistoryStore::open(directory_ + "/c", 60s)->count(7, {{"chat", of(1, 1, 1)}});
  const auto read = read_traffic({directory_ + "/a", directory_ + "/b"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->windows.at(7).at("chat").arrivals, 2);
  EXPECT_THAT(problem({directory_ + "/a", directory_ + "/c"}),
              HasSubstr("its windows are of 60.0 s, those of the file before of 5m 00s"));
}

TEST_F(TrafficTest, TheLengthThatWasUsedLastCounts) {
  HistoryStore::open(directory_, 300s)->count(7, {{"chat", of(1, 1, 1)}});
  HistoryStore::open(directory_, 60s)->count(100, {{"chat", of(2, 1, 1)}});
  const auto read = read_traffic({directory_});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->window, 60s);
  EXPECT_EQ(read->windows.size(), 1U);
}

TEST_F(TrafficTest, WindowsAreForgottenAsLoadsAre) {
  const auto store = HistoryStore::open(directory_, 300s);
  for (std::int64_t window = 0; window < 9; ++window) {
    store->count(window, {{"chat", of(1, 1, 1)}});
  }
  store->prune(4);
  store->flush();
  const auto read = read_traffic({directory_});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->windows.begin()->first, 5);
}

TEST_F(TrafficTest, SaysWhatIsWrong) {
  EXPECT_THAT(problem({directory_}), HasSubstr("history.db: there is no such file"));
  std::ofstream(file()) << std::string(5000, 'x');
  EXPECT_THAT(problem({file()}), HasSubstr("it is no history of heddle"));
  fs::remove(file());
  (void)HistoryStore::open(directory_, 300s);
  EXPECT_THAT(problem({directory_}), HasSubstr("it has no requests yet"));
  run("DROP TABLE traffic");
  EXPECT_THAT(problem({directory_}), HasSubstr("it has no requests yet")) << "of a version before";
  run("PRAGMA user_version = 7");
  EXPECT_THAT(problem({directory_}), HasSubstr("it is of version 7; this heddle knows 1"));
}

TEST_F(TrafficTest, NumbersThatCannotBeAreRefused) {
  HistoryStore::open(directory_, 300s)->count(7, {{"chat", of(1, 1, 1)}});
  run("UPDATE traffic SET answer_tokens = -5");
  EXPECT_THAT(problem({directory_}), HasSubstr("numbers of requests that cannot be"));
}

}  // namespace
}  // namespace heddle::history
