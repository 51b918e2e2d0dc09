#include "external/container_body.h"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"
#include "external/external_engine.h"
#include "external/record.h"
#include "external/run_program.h"
#include "external/test_engine.h"

#include <signal.h>

namespace heddle::external {
namespace {

using spec::SuspendLevel;
using testing::HasSubstr;

const std::string kRuntime = places::source("tests/engines/containers.py");

/// Engines in what stands in for containers: tests/engines/containers.py has podman's words.
class ContainerBodyTest : public testing::Test {
 protected:
  ContainerBodyTest() {
    ::setenv("HEDDLE_TEST_CONTAINERS", containers_.path().c_str(), 1);
    tools_.blocking_pool = std::make_shared<BlockingPool>(4);
  }
  ~ContainerBodyTest() override {
    engine_.reset();
    tools_.blocking_pool->finish();
  }

  void make(const std::vector<std::string>& flags, const std::string& image = "python3") {
    config::EngineConfig config = engine_config(scratch_, flags);
    config.container.runtime = kRuntime;
    config.container.image = image;
    config.container.args.assign(config.command.begin() + 1, config.command.end());
    config.command.clear();
    config.served_name = "alpha";
    config.env = {{"HEDDLE_TEST_GIVEN", "given"}};
    engine_ = std::make_unique<ExternalEngine>(
        loop_.get_executor(), "org/m:1", config, false, tools_, [this](const std::string& how) {
          died_ = how;
        });
  }
  /// Whether one of ours is known to the tool.
  [[nodiscard]] bool there() const {
    return std::filesystem::exists(containers_ / "heddle-org-m-1.pid");
  }
  [[nodiscard]] std::string calls() const { return read_small_file(containers_ / "calls"); }

  Scratch scratch_{};
  Scratch containers_{};
  boost::asio::io_context loop_{1};
  EngineTools tools_{};
  std::optional<std::string> died_{};
  std::unique_ptr<ExternalEngine> engine_{};
};

TEST_F(ContainerBodyTest, RunsPausesAndRemovesIt) {
  make({"--anonymous-mib", "32"});
  const auto started = run(loop_, engine_->start());
  ASSERT_TRUE(started.has_value()) << started.error().message;
  EXPECT_GT(started->device_bytes, 32U << 20U);
  const std::vector<pid_t> pids = engine_pids(scratch_);
  EXPECT_EQ(engine_->processes(), pids);
  EXPECT_TRUE(has_in_environment(pids[0], "HEDDLE_TEST_GIVEN=given"));

  ASSERT_TRUE(run(loop_, engine_->suspend(SuspendLevel::kFreeze)).has_value());
  EXPECT_EQ(process_facts(pids[0])->state, 'T');
  const auto back = run(loop_, engine_->resume());
  ASSERT_TRUE(back.has_value()) << back.error().message;

  EXPECT_EQ(run(loop_, engine_->stop()), "the container was stopped");
  EXPECT_TRUE(gone(pids[0]));
  EXPECT_FALSE(there());
  EXPECT_FALSE(died_.has_value());
  EXPECT_THAT(calls(), HasSubstr("pause heddle-org-m-1\n"));
  EXPECT_THAT(calls(), HasSubstr("stop -t\n"));
}

TEST_F(ContainerBodyTest, RemovesWhatAnEarlierRunLeft) {
  const auto left =
      run_program({kRuntime, "run", "-d", "--name", "heddle-org-m-1", "sleep", "1000"}, 1min);
  ASSERT_TRUE(left.has_value()) << left.error().message;
  const pid_t pid = std::stoi(read_small_file(containers_ / "heddle-org-m-1.pid"));
  EXPECT_TRUE(runs(pid));
  make({});
  ASSERT_TRUE(run(loop_, engine_->start()).has_value());
  EXPECT_TRUE(gone(pid));
  EXPECT_TRUE(there());
}

TEST_F(ContainerBodyTest, IsRemovedByASecondLife) {
  tools_.record_directory = containers_ / "records";
  make({});
  ASSERT_TRUE(run(loop_, engine_->start()).has_value());
  const std::vector<Record> records = read_records(tools_.record_directory);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].runtime, kRuntime);
  Record left = records[0];
  left.owner = {.pid = 1, .start_time = 77};  // A process that there is not.
  const std::string other = containers_ / "others";
  const auto file = RecordFile::write(other, left);
  const pid_t pid = engine_pids(scratch_)[0];
  const auto ended = end_leftovers(other, 1min);
  ASSERT_TRUE(ended.has_value()) << ended.error().message;
  EXPECT_EQ(*ended, 1U);
  EXPECT_TRUE(gone(pid));
  EXPECT_FALSE(there());
  ASSERT_TRUE(run_until(loop_, [&] { return died_.has_value(); }));
  EXPECT_TRUE(read_records(tools_.record_directory).empty());
}

TEST_F(ContainerBodyTest, TellsOfOneThatEndedByItself) {
  make({});
  ASSERT_TRUE(run(loop_, engine_->start()).has_value());
  ASSERT_EQ(::kill(engine_pids(scratch_)[0], SIGKILL), 0);
  ASSERT_TRUE(run_until(loop_, [&] { return died_.has_value(); }));
  EXPECT_EQ(*died_, "the container has ended");
  EXPECT_FALSE(there());
}

TEST_F(ContainerBodyTest, SaysWhyItCannotBeRun) {
  make({}, "missing");
  const auto started = run(loop_, engine_->start());
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("image not known"));
}

TEST_F(ContainerBodyTest, IsRemovedWithItsObject) {
  make({"--sigterm", "ignore"});
  ASSERT_TRUE(run(loop_, engine_->start()).has_value());
  const pid_t pid = engine_pids(scratch_)[0];
  engine_.reset();
  EXPECT_TRUE(gone(pid));
  EXPECT_FALSE(there());
}

// The same with podman itself, for machines that have it. HEDDLE_TEST_PODMAN has the options of
// `podman run`, the image and the way to python in it, for example "--network=host
// docker.io/python:3 python3"; this source tree is mounted for it.
TEST_F(ContainerBodyTest, WorksWithPodman) {
  const char* words = ::getenv("HEDDLE_TEST_PODMAN");
  if (words == nullptr) {
    GTEST_SKIP() << "HEDDLE_TEST_PODMAN does not say which image to run";
  }
  std::vector<std::string> options = {
      "-v", std::string(places::kSources) + ":" + places::kSources + ":ro"};
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    options.push_back(word);
  }
  ASSERT_GE(options.size(), 4U);
  config::EngineConfig config = engine_config(scratch_, {"--anonymous-mib", "32", "--child"});
  // Its directory and its file of numbers are not there; and its numbers would be its own.
  const std::vector<std::string> script(config.command.begin() + 1, config.command.begin() + 6);
  config.container.args = {options.back()};
  options.pop_back();
  config.container.args.insert(config.container.args.end(), script.begin(), script.end());
  config.container.args.emplace_back("--anonymous-mib=32");
  config.container.args.emplace_back("--child");
  config.container.image = options.back();
  options.pop_back();
  config.container.options = options;
  config.command.clear();
  config.served_name = "alpha";
  engine_ = std::make_unique<ExternalEngine>(
      loop_.get_executor(), "podman-test", config, false, tools_, [](const std::string&) {});
  const auto started = run(loop_, engine_->start());
  ASSERT_TRUE(started.has_value()) << started.error().message;
  EXPECT_GT(started->device_bytes, 32U << 20U);
  const std::vector<pid_t> pids = engine_->processes();
  EXPECT_EQ(pids.size(), 2U) << "the child too";
  const auto frozen = run(loop_, engine_->suspend(SuspendLevel::kFreeze));
  ASSERT_TRUE(frozen.has_value()) << frozen.error().message;
  const auto back = run(loop_, engine_->resume());
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(run(loop_, engine_->stop()), "the container was stopped");
  for (const pid_t pid : pids) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
}

}  // namespace
}  // namespace heddle::external
