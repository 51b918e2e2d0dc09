#include "history/history_store.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log_tail.h"
#include "history/database.h"

#include <unistd.h>

namespace heddle::history {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr std::int64_t kAll = 1'000'000;
constexpr policy::Load kQuiet{.mean = 0.5, .peak = 2};
constexpr policy::Load kBusy{.mean = 7.25, .peak = 30};

class HistoryStoreTest : public testing::Test {
 protected:
  HistoryStoreTest() {
    std::string name = (fs::temp_directory_path() / "heddle-history-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    fs::permissions(directory_, fs::perms::all);
  }
  ~HistoryStoreTest() override { fs::remove_all(directory_); }

  [[nodiscard]] std::unique_ptr<HistoryStore> open(Duration window = 300s) const {
    return HistoryStore::open(directory_ + "/data", window);
  }
  [[nodiscard]] std::string file() const { return directory_ + "/data/" + HistoryStore::kFile; }
  [[nodiscard]] std::vector<std::string> set_aside() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_ + "/data")) {
      if (entry.path().filename().string().starts_with("history.db.corrupt-")) {
        names.push_back(entry.path().string());
      }
    }
    return names;
  }
  /// As if another program did it.
  void run(const char* statements) const {
    auto database = Database::open(file(), Database::Mode::kReadWrite);
    ASSERT_TRUE(database) << database.error().message;
    const Result<void> done = database->run(statements);
    ASSERT_TRUE(done) << done.error().message;
  }
  void damage() const { std::ofstream(file(), std::ios::trunc) << std::string(5000, 'x'); }

  std::string directory_;
};

TEST_F(HistoryStoreTest, IsMadeWhereItIsMissingAndSurvivesRestarts) {
  {
    const auto store = open();
    ASSERT_EQ(store->access(), Access::kReadWrite);
    EXPECT_THAT(store->read_all(kAll), IsEmpty());
    store->record(5, {{"chat", kQuiet}, {"code", kBusy}});
    store->record(6, {{"chat", kBusy}});
  }
  EXPECT_THAT(open()->read_all(kAll),
              ElementsAre(Pair("chat", ElementsAre(WindowLoad{5, kQuiet}, WindowLoad{6, kBusy})),
                          Pair("code", ElementsAre(WindowLoad{5, kBusy}))));
}

TEST_F(HistoryStoreTest, AWindowOfAnotherLengthIsAnotherWindow) {
  open(300s)->record(5, {{"chat", kQuiet}});
  open(1s)->record(5, {{"chat", kBusy}});
  EXPECT_THAT(open(300s)->read_all(kAll),
              ElementsAre(Pair("chat", ElementsAre(WindowLoad{5, kQuiet}))));
  EXPECT_THAT(open(1s)->read_all(kAll),
              ElementsAre(Pair("chat", ElementsAre(WindowLoad{5, kBusy}))));
}

TEST_F(HistoryStoreTest, AClockThatWentBackReplacesWhatItMeasuresAgainAndNothingElse) {
  const auto store = open();
  for (const std::int64_t window : {100, 101, 102}) {
    store->record(window, {{"chat", kQuiet}});
  }
  store->record(101, {{"chat", kBusy}});
  store->record(1, {{"chat", kBusy}});  // As of a machine whose clock begins anew.
  EXPECT_THAT(store->read_all(kAll),
              ElementsAre(Pair("chat",
                               ElementsAre(WindowLoad{1, kBusy},
                                           WindowLoad{100, kQuiet},
                                           WindowLoad{101, kBusy},
                                           WindowLoad{102, kQuiet}))));
}

TEST_F(HistoryStoreTest, WhatAClockAheadHasEnteredIsNotSeenAndCostsNoHistory) {
  const auto store = open();
  for (std::int64_t window = 100; window < 110; ++window) {
    store->record(window, {{"chat", kQuiet}});
  }
  store->record(900'000, {{"chat", kBusy}});
  store->prune(5);
  const auto all = store->read_all(110);
  ASSERT_TRUE(all.contains("chat"));
  EXPECT_THAT(all.at("chat"),
              ElementsAre(WindowLoad{106, kQuiet},
                          WindowLoad{107, kQuiet},
                          WindowLoad{108, kQuiet},
                          WindowLoad{109, kQuiet}));
}

TEST_F(HistoryStoreTest, KeepsSoManyWindowsOfAllModelsTogether) {
  const auto store = open();
  store->record(1, {{"gone", kQuiet}});
  store->record(2, {{"gone", kQuiet}, {"chat", kQuiet}});
  store->record(8, {{"chat", kBusy}});
  store->prune(3);
  EXPECT_EQ(store->read_all(kAll).at("gone").size(), 2U);
  store->prune(2);
  EXPECT_EQ(store->read_all(kAll).at("gone").size(), 1U);
  store->prune(1);
  EXPECT_THAT(store->read_all(kAll), ElementsAre(Pair("chat", ElementsAre(WindowLoad{8, kBusy}))));
}

TEST_F(HistoryStoreTest, EntersManyWindowsAtOnce) {
  const auto store = open();
  store->record(6, {{"chat", kQuiet}});
  PastLoads others;
  for (std::int64_t window = 5; window < 5005; ++window) {
    others["chat"].push_back({.window = window, .load = kBusy});
  }
  others["code"] = {{.window = 9, .load = kQuiet}};
  store->enter(others);
  EXPECT_EQ(store->read_all(kAll), others) << "it replaces what was there";
}

TEST_F(HistoryStoreTest, ADamagedFileIsSetAsideAndBegunAnew) {
  open()->record(5, {{"chat", kQuiet}});
  damage();
  const auto store = open();
  EXPECT_EQ(store->access(), Access::kReadWrite);
  EXPECT_THAT(store->read_all(kAll), IsEmpty());
  store->record(6, {{"chat", kBusy}});
  EXPECT_EQ(store->read_all(kAll).at("chat").size(), 1U);
  ASSERT_EQ(set_aside().size(), 1U);
  EXPECT_EQ(fs::file_size(set_aside()[0]), 5000U) << "nothing is lost to who wants to look at it";
}

TEST_F(HistoryStoreTest, ATornFileIsSetAsideToo) {
  {
    const auto store = open();
    for (std::int64_t window = 0; window < 1000; ++window) {
      store->record(window, {{"a model with a long name", kQuiet}});
    }
  }
  ASSERT_GT(fs::file_size(file()), 30'000U);
  std::fstream bytes(file(), std::ios::in | std::ios::out);
  bytes.seekp(20'000);
  bytes << std::string(9000, '\7');
  bytes.close();
  EXPECT_EQ(open()->access(), Access::kReadWrite);
  EXPECT_EQ(set_aside().size(), 1U);
}

TEST_F(HistoryStoreTest, WarnsOfWhatItDoesNotHandOn) {
  const auto warnings = [this](const std::function<void()>& damage) {
    open()->record(5, {{"chat", kQuiet}});
    damage();
    const std::uint64_t before = log::tail(0).empty() ? 0 : log::tail(0).back().number;
    (void)open()->read_all(kAll);
    std::vector<std::string> said;
    for (const log::Line& line : log::tail(before)) {
      said.push_back(line.text);
    }
    return said;
  };
  const auto empty = warnings([this] { fs::resize_file(file(), 0); });
  ASSERT_EQ(empty.size(), 1U);
  EXPECT_THAT(empty[0], HasSubstr("it is begun anew"));
  EXPECT_THAT(empty[0], HasSubstr(file()));
  const auto lost = warnings([this] { run("DROP TABLE load"); });
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_THAT(lost[0], HasSubstr("no such table"));
  const auto unsound = warnings([this] { run("UPDATE load SET mean = -1"); });
  ASSERT_EQ(unsound.size(), 1U);
  EXPECT_THAT(unsound[0], HasSubstr("left out"));
  EXPECT_THAT(warnings([] {}), IsEmpty());
}

TEST_F(HistoryStoreTest, AFileOfALaterVersionIsLeftAlone) {
  open()->record(5, {{"chat", kQuiet}});
  run("PRAGMA user_version = 7");
  {
    const auto store = open();
    EXPECT_EQ(store->access(), Access::kNone);
    EXPECT_THAT(store->read_all(kAll), IsEmpty());
    store->record(6, {{"chat", kQuiet}});
    store->prune(1);
    store->flush();
  }
  auto database = Database::open(file(), Database::Mode::kReadWrite);
  EXPECT_EQ(database->integer("PRAGMA user_version").value(), 7);
  EXPECT_EQ(database->integer("SELECT count(*) FROM load").value(), 1);
  EXPECT_THAT(set_aside(), IsEmpty());
}

/// For its life this process may write only what anybody may.
class Nobody {
 public:
  Nobody() : changed_(::geteuid() == 0 && ::seteuid(65534) == 0) {}
  ~Nobody() {
    if (changed_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;

 private:
  bool changed_;
};

TEST_F(HistoryStoreTest, WhatCannotBeWrittenIsRead) {
  open()->record(5, {{"chat", kQuiet}});
  const fs::perms read = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  fs::permissions(file(), read);
  fs::permissions(directory_ + "/data",
                  read | fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec);
  {
    const Nobody nobody;
    const auto store = open();
    EXPECT_EQ(store->access(), Access::kReadOnly);
    EXPECT_EQ(store->read_all(kAll).at("chat").size(), 1U);
    store->record(6, {{"chat", kQuiet}});
    store->flush();
    EXPECT_EQ(store->read_all(kAll).at("chat").size(), 1U);
  }
  fs::permissions(directory_ + "/data", fs::perms::all);
}

TEST_F(HistoryStoreTest, WhereNothingCanBeMadeThereIsNone) {
  std::ofstream(directory_ + "/data") << "a file where the folder should be";
  const auto store = open();
  EXPECT_EQ(store->access(), Access::kNone);
  store->record(6, {{"chat", kQuiet}});
  store->flush();
  EXPECT_THAT(store->read_all(kAll), IsEmpty());
}

TEST_F(HistoryStoreTest, ValuesThatCannotBeAreNotHandedOn) {
  open()->record(5, {{"chat", kQuiet}});
  run("INSERT INTO load SELECT length_ns, start + 1, model, -1, 9 FROM load;"
      "INSERT INTO load SELECT length_ns, -3, model, 1, 'many' FROM load WHERE start = 5");
  EXPECT_THAT(open()->read_all(kAll),
              ElementsAre(Pair("chat", ElementsAre(WindowLoad{5, kQuiet}))));
}

// What breaks under a running server is noticed by the writer.
TEST_F(HistoryStoreTest, AFileThatIsDamagedWhileItIsUsedIsBegunAnew) {
  const auto store = open();
  store->record(5, {{"chat", kQuiet}});
  store->flush();
  run("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA writable_schema = ON;"
      "UPDATE sqlite_master SET sql = 'no table' WHERE name = 'load'; PRAGMA schema_version = 99");
  store->record(6, {{"chat", kBusy}});
  EXPECT_THAT(store->read_all(kAll), ElementsAre(Pair("chat", ElementsAre(WindowLoad{6, kBusy}))));
  EXPECT_EQ(set_aside().size(), 1U);
}

}  // namespace
}  // namespace heddle::history
