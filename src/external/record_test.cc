#include "external/record.h"

#include <fstream>

#include <gtest/gtest.h>

#include "external/child_process.h"
#include "external/process_set.h"
#include "external/test_engine.h"

#include <fcntl.h>
#include <unistd.h>

namespace heddle::external {
namespace {

namespace fs = std::filesystem;

/// Nobody else's, whoever runs these tests beside us.
std::string mark(int number) {
  return "heddle-test-" + std::to_string(::getpid()) + "-" + std::to_string(number);
}

const Record kRecord{.model = "qwen/7b: chat",
                     .owner = {.pid = 1, .start_time = 77},
                     .leader = {.pid = 2, .start_time = 99},
                     .mark = mark(1),
                     .cgroup = "/sys/fs/cgroup/heddle-test-1",
                     .runtime = "docker"};

TEST(Record, IsReadAsItWasWrittenAndGoesWithItsFile) {
  const Scratch scratch;
  const std::string directory = scratch / "new/and/deep";
  {
    Record changed = kRecord;
    changed.leader = {};
    const auto file = RecordFile::write(directory, changed);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(read_records(directory), std::vector<Record>{changed});
    ASSERT_TRUE(file->rewrite(kRecord).has_value());
    EXPECT_EQ(read_records(directory), std::vector<Record>{kRecord});
  }
  EXPECT_TRUE(read_records(directory).empty());
  EXPECT_TRUE(read_records(scratch / "none").empty());
}

TEST(Record, ThatIsNoneIsSkipped) {
  const Scratch scratch;
  std::ofstream(scratch / "half.engine") << "model a\nmark heddle-x\n";  // Cut off.
  std::ofstream(scratch / "noise.engine") << std::string(1000, '\xff');
  std::ofstream(scratch / "other") << "model a\nmark m\nend\n";
  EXPECT_TRUE(read_records(scratch.path()).empty());
  // A control group that is not ours is nobody's to kill.
  std::ofstream(scratch / "evil.engine") << "model a\nmark m\ncgroup /sys/fs/cgroup/system\nend\n";
  ASSERT_EQ(read_records(scratch.path()).size(), 1U);
  EXPECT_EQ(read_records(scratch.path())[0].cgroup, "");
}

TEST(Record, ThatSomebodyElseCouldHaveWrittenIsNotUsed) {
  const Scratch scratch;
  const auto file = RecordFile::write(scratch / "mine", kRecord);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const fs::path record = *fs::directory_iterator(scratch / "mine");
  fs::permissions(record, fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(read_records(scratch / "mine").empty());
  fs::permissions(record, fs::perms::others_write, fs::perm_options::remove);
  EXPECT_EQ(read_records(scratch / "mine").size(), 1U);
  fs::permissions(scratch / "mine", fs::perms::group_write, fs::perm_options::add);
  EXPECT_TRUE(read_records(scratch / "mine").empty());
  const auto refused = RecordFile::write(scratch / "mine", kRecord);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  fs::create_directory_symlink(scratch.path(), scratch / "link");
  EXPECT_FALSE(RecordFile::write(scratch / "link", kRecord).has_value());
}

/// A process with a mark, as if somebody had left it behind.
struct Leftover {
  explicit Leftover(const std::string& mark) {
    const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    child = ChildProcess::spawn(
                loop.get_executor(),
                {.argv = {"sleep", "1000"}, .env = {{std::string(kMarkVariable), mark}}},
                nowhere,
                [](const std::string&) {})
                .value();
  }
  boost::asio::io_context loop{1};
  std::unique_ptr<ChildProcess> child{};
};

TEST(Leftovers, OfALifeThatHasEndedAreEnded) {
  const Scratch scratch;
  Record record = kRecord;  // Process 1 began at another time: that owner has ended.
  record.cgroup = "";
  record.runtime = "";
  const auto file = RecordFile::write(scratch.path(), record);
  ASSERT_TRUE(file.has_value());
  const Leftover left(record.mark);
  const auto ended = end_leftovers(scratch.path(), 10s);
  ASSERT_TRUE(ended.has_value()) << ended.error().message;
  EXPECT_EQ(*ended, 1U);
  EXPECT_TRUE(gone(left.child->pid()));
  EXPECT_TRUE(read_records(scratch.path()).empty());
}

TEST(Leftovers, OfALifeThatRunsAreItsOwn) {
  const Scratch scratch;
  Record record = kRecord;
  record.owner = name_process(::getpid());
  record.mark = mark(2);
  record.cgroup = "";
  record.runtime = "";
  const auto file = RecordFile::write(scratch.path(), record);
  ASSERT_TRUE(file.has_value());
  const Leftover left(record.mark);
  const auto ended = end_leftovers(scratch.path(), 10s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(*ended, 0U);
  EXPECT_TRUE(runs(left.child->pid()));
  EXPECT_EQ(read_records(scratch.path()).size(), 1U);
}

}  // namespace
}  // namespace heddle::external
