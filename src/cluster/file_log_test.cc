#include "cluster/file_log.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "cluster/test_store.h"

#include <sys/wait.h>
#include <unistd.h>

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct FileLogTest : testing::Test {
  FileLog open() const {
    Result<FileLog> log = FileLog::open(folder.path() / "r");
    HEDDLE_CHECK(log.has_value());
    return std::move(*log);
  }
  static Revision put(FileLog& log, const std::string& key, const std::string& value) {
    Result<std::optional<Descriptor>> lock = log.lock();
    HEDDLE_CHECK(lock && *lock);
    const auto done = log.append({.record = {.key = key, .value = value}});
    HEDDLE_CHECK(done.has_value());
    return *done;
  }
  static std::string value(const FileLog& log, const std::string& key) {
    const auto found = log.records().find(key);
    return found == log.records().end() ? "none" : found->second.record.value;
  }
  std::filesystem::path file() const { return folder.path() / "r" / "records"; }

  test::Folder folder{};
};

TEST_F(FileLogTest, ShowsOthersWhatOnePuts) {
  FileLog one = open();
  FileLog two = open();
  ASSERT_TRUE(two.read());
  EXPECT_EQ(two.revision(), 0U);
  const Revision a = put(one, "a", "1");
  ASSERT_TRUE(two.read());
  EXPECT_EQ(value(two, "a"), "1");
  const Revision b = put(two, "b", "2");
  EXPECT_GT(b, a);
  ASSERT_TRUE(one.read());
  EXPECT_EQ(value(one, "b"), "2");
  EXPECT_EQ(one.changes_after(a)->size(), 1U);
  EXPECT_EQ(one.changes_after(0)->size(), 2U);
  EXPECT_EQ(one.changes_after(b + 1), std::nullopt);
  EXPECT_EQ(one.breaks() + two.breaks(), 0U);
}

TEST_F(FileLogTest, IsLockedForOthersWhileOneWrites) {
  FileLog one = open();
  FileLog two = open();
  {
    const auto held = one.lock();
    ASSERT_TRUE(held && *held);
    const auto refused = two.lock();
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->has_value());
  }
  const auto free = two.lock();
  EXPECT_TRUE(free && *free);
}

TEST_F(FileLogTest, CutsOffALineThatItsWriterDidNotEnd) {
  FileLog one = open();
  FileLog reader = open();
  put(one, "a", "1");
  std::ofstream(file(), std::ios::app) << R"({"revision":2,"key":"a","val)";
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(value(reader, "a"), "1");
  put(one, "a", "2");
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(value(reader, "a"), "2");
  FileLog fresh = open();
  ASSERT_TRUE(fresh.read());
  EXPECT_EQ(value(fresh, "a"), "2");
}

TEST_F(FileLogTest, WritesALongFileAnewAndLosesNoChange) {
  FileLog one = open();
  FileLog reader = open();
  FileLog late = open();
  const Revision first = put(one, "keep", "me");
  ASSERT_TRUE(reader.read());
  ASSERT_TRUE(late.read());
  const std::string big(kValueMax, 'x');
  std::uint64_t longest = 0;
  std::uint64_t seen = 0;
  Revision position = first;
  for (int i = 0; i < 100; ++i) {
    put(one, "big", big + "");
    longest = std::max<std::uint64_t>(longest, std::filesystem::file_size(file()));
    ASSERT_TRUE(reader.read());
    const auto changes = reader.changes_after(position);
    ASSERT_TRUE(changes);
    seen += changes->size();
    position = reader.revision();
  }
  EXPECT_LT(std::filesystem::file_size(file()), longest) << "it was written anew";
  EXPECT_EQ(seen, 100U);
  EXPECT_EQ(reader.breaks(), 0U);
  EXPECT_EQ(value(reader, "keep"), "me");
  ASSERT_TRUE(late.read());
  EXPECT_EQ(value(late, "big"), big);
  EXPECT_EQ(late.revision(), one.revision());
}

TEST_F(FileLogTest, NoticesAFileOfAnEarlierDayOrAnother) {
  FileLog one = open();
  put(one, "a", "1");
  std::filesystem::copy(file(), folder.path() / "old");
  put(one, "a", "2");
  std::filesystem::rename(folder.path() / "old", file());
  ASSERT_TRUE(one.read());
  EXPECT_EQ(one.breaks(), 1U);
  EXPECT_EQ(value(one, "a"), "1");
  std::filesystem::remove(file());
  ASSERT_TRUE(one.read());
  EXPECT_EQ(one.breaks(), 2U);
  EXPECT_EQ(value(one, "a"), "none");
  put(one, "a", "3");
  EXPECT_EQ(value(one, "a"), "3");
}

TEST_F(FileLogTest, ReadsNoLineThatIsNotOfIt) {
  const std::string well = write_log_line({.record = {"a/b", "\xff", 7}, .life = 1500ms});
  const auto read = parse_log_line(well);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->record, (Record{"a/b", "\xff", 7}));
  EXPECT_EQ(read->life, 1500ms);
  for (const char* line : {"",
                           "{}",
                           "[1]",
                           R"({"revision":0,"key":"a","value":""})",
                           R"({"revision":1,"key":"A","value":""})",
                           R"({"revision":1,"key":"a","value":"!"})",
                           R"({"revision":1,"key":"a","value":"","life_ms":-1})"}) {
    const auto wrong = parse_log_line(line);
    ASSERT_FALSE(wrong) << line;
    EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  }
  EXPECT_FALSE(parse_log_head(R"({"heddle_registry":"xyz","revision":1})"));
}

TEST_F(FileLogTest, SaysInWhichLineItMakesNoSense) {
  FileLog one = open();
  put(one, "a", "1");
  std::ofstream(file(), std::ios::app) << R"({"revision":1,"key":"a","value":""})" << "\n";
  const Result<void> read = one.read();
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("records:3: revision 1 after 1"));
}

/// Raises a counter again and again; whoever is killed at it harms nobody.
void raise_for_ever(const std::string& directory) {
  Result<FileLog> log = FileLog::open(directory);
  for (;;) {
    Result<std::optional<Descriptor>> lock = log->lock();
    if (!lock) {
      ::_exit(1);
    }
    if (*lock) {
      const auto found = log->records().find("n");
      const int n = found == log->records().end() ? 0 : std::stoi(found->second.record.value);
      const std::string next = std::to_string(n + 1);
      if (!log->append({.record = {.key = "n", .value = next}})) {
        ::_exit(1);
      }
    }
  }
}

TEST_F(FileLogTest, IsWholeWheneverItsWritersAreKilled) {
  const std::uint64_t seed = 7;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  FileLog reader = open();
  int last = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<pid_t> writers;
    for (int i = 0; i < 3; ++i) {
      writers.push_back(::fork());
      if (writers.back() == 0) {
        raise_for_ever(folder.path() / "r");
      }
    }
    const int goal = last + 50 + static_cast<int>(rng.below(200));
    for (int n = last; n < goal;
         n = value(reader, "n") == "none" ? 0 : std::stoi(value(reader, "n"))) {
      const Result<void> read = reader.read();
      ASSERT_TRUE(read) << read.error().message;
    }
    for (const pid_t each : writers) {
      ::kill(each, SIGKILL);
      int status = 0;
      ::waitpid(each, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
    }
    ASSERT_TRUE(reader.read());
    last = std::stoi(value(reader, "n"));
    EXPECT_EQ(reader.revision(), static_cast<Revision>(last)) << "each change is one step";
    EXPECT_EQ(reader.breaks(), 0U);
  }
}

}  // namespace
}  // namespace heddle::cluster
