#include "external/process_set.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#include "external/child_process.h"
#include "external/test_engine.h"

#include <fcntl.h>
#include <unistd.h>

namespace heddle::external {
namespace {

class ProcessSetTest : public testing::TestWithParam<Grouping> {
 protected:
  void SetUp() override {
    mark_ = "heddle-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count_);
    auto made = make_process_set(GetParam(), mark_, mark_);
    if (!made) {
      GTEST_SKIP() << made.error().message;
    }
    own_ = std::move(*made);
  }

  void TearDown() override {
    if (own_.set != nullptr) {
      own_.set->kill();
      EXPECT_TRUE(comes_true([&] { return own_.set->members().empty(); }));
    }
  }

  /// A shell that counts into a file, and so does a grandchild in a session of its own.
  void start() {
    const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    Command command{.argv = {"bash",
                             "-c",
                             "count() { while :; do echo x >> $1; sleep 0.005; done; }\n"
                             "export -f count\n"
                             "setsid bash -c 'count stray' &\n"
                             "disown; count leader"},
                    .env = {{std::string(kMarkVariable), mark_}},
                    .directory = scratch_.path(),
                    .join_file = own_.join_file};
    auto child =
        ChildProcess::spawn(loop_.get_executor(), command, nowhere, [](const std::string&) {});
    ASSERT_TRUE(child.has_value()) << child.error().message;
    leader_ = std::move(*child);
    ASSERT_TRUE(comes_true([&] { return counted("leader") > 0 && counted("stray") > 0; }));
  }

  std::uintmax_t counted(const std::string& who) const {
    std::error_code none;
    const std::uintmax_t size = std::filesystem::file_size(scratch_ / who, none);
    return none ? 0 : size;
  }
  std::uintmax_t counted() const { return counted("leader") + counted("stray"); }

  /// Whether both go on.
  bool both_count() const {
    const std::uintmax_t leader = counted("leader");
    const std::uintmax_t stray = counted("stray");
    return comes_true([&] { return counted("leader") > leader && counted("stray") > stray; });
  }

  static inline int count_ = 0;
  Scratch scratch_{};
  std::string mark_{};
  OwnSet own_{};
  boost::asio::io_context loop_{1};
  std::unique_ptr<ChildProcess> leader_{};
};

TEST_P(ProcessSetTest, HasTheGrandchildThatLeftItsSession) {
  EXPECT_TRUE(own_.set->members().empty());
  start();
  const std::vector<pid_t> members = own_.set->members();
  EXPECT_GE(members.size(), 2U);
  EXPECT_NE(std::find(members.begin(), members.end(), leader_->pid()), members.end());
  EXPECT_EQ(std::find(members.begin(), members.end(), ::getpid()), members.end());
  own_.set->kill();
}

TEST_P(ProcessSetTest, StandsStillAndGoesOn) {
  start();
  for (int i = 0; i < 5; ++i) {
    const Result<void> frozen = own_.set->freeze(10s);
    ASSERT_TRUE(frozen.has_value()) << frozen.error().message;
    const std::uintmax_t before = counted();
    std::this_thread::sleep_for(50ms);  // Ten rounds of theirs.
    EXPECT_EQ(counted(), before);
    EXPECT_GE(own_.set->members().size(), 2U);
    const Result<void> thawed = own_.set->thaw(10s);
    ASSERT_TRUE(thawed.has_value()) << thawed.error().message;
    EXPECT_TRUE(both_count());
  }
  own_.set->kill();
}

TEST_P(ProcessSetTest, IsKilledAsAWholeEvenFrozen) {
  start();
  const std::vector<pid_t> members = own_.set->members();
  ASSERT_TRUE(own_.set->freeze(10s).has_value());
  own_.set->kill();
  EXPECT_TRUE(comes_true([&] { return own_.set->members().empty(); }));
  for (const pid_t pid : members) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
  leader_.reset();
  const std::string directory = own_.directory;
  own_ = OwnSet();
  EXPECT_TRUE(directory.empty() || !std::filesystem::exists(directory));
}

TEST_P(ProcessSetTest, IsEndedByASecondLife) {
  start();
  ASSERT_TRUE(own_.set->freeze(10s).has_value());
  const std::vector<pid_t> members = own_.set->members();
  const Result<void> ended = end_leftover(own_.directory, mark_, 10s);
  EXPECT_TRUE(ended.has_value()) << ended.error().message;
  for (const pid_t pid : members) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
}

std::string test_name(const testing::TestParamInfo<Grouping>& info) {
  constexpr std::array kNames = {"Cgroup2", "Cgroup1", "Marked"};
  return kNames.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(AllGroupings,
                         ProcessSetTest,
                         testing::Values(Grouping::kCgroup2, Grouping::kCgroup1, Grouping::kMarked),
                         test_name);

TEST(BestGrouping, CanBeHad) {
  const Grouping best = best_grouping();
  const std::string label = "heddle-best-" + std::to_string(::getpid());
  const auto made = make_process_set(best, label, label);
  ASSERT_TRUE(made.has_value()) << name(best) << ": " << made.error().message;
}

}  // namespace
}  // namespace heddle::external
