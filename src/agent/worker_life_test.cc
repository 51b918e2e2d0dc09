#include "agent/worker_life.h"

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/test_worker.h"

#include <sys/socket.h>
#include <unistd.h>

namespace heddle::agent {
namespace {

/// A life whose worker is this test's own program; `name` tells it how to behave.
struct Lived {
  explicit Lived(const std::string& name) {
    const rpc::WorkerHello hello{.epoch = WorkerEpoch(5), .name = name};
    auto begun = WorkerLife::begin(
        loop.get_executor(),
        hello,
        STDIN_FILENO,
        {.on_hello = [this](const std::optional<Error>& failure) { ready = !failure; },
         .on_report = [this](const core::WorkerReport& report,
                             const auto& /*none*/) { reports.push_back(report.index()); },
         .on_stats = [this](const rpc::WorkerStats& stats) { steps = stats.steps; },
         .on_beat = [this](const rpc::Beat& beat) { beats += beat.threads.size(); },
         .on_exited = [this](const std::string& end) { how = end; }});
    HEDDLE_CHECK(begun.has_value());
    life = std::move(*begun);
  }

  boost::asio::io_context loop{1};
  std::optional<bool> ready{};
  std::vector<std::size_t> reports{};
  std::uint64_t steps = 0;
  std::size_t beats = 0;
  std::string how{};
  std::unique_ptr<WorkerLife> life{};
};

TEST(WorkerLife, HearsAllThatWasSaidBeforeTheEnd) {
  Lived lived(kSaysAllThenEnds);
  lived.loop.run();
  EXPECT_EQ(lived.ready, true);
  EXPECT_EQ(lived.reports.size(), 3U);
  EXPECT_EQ(lived.steps, 77U);
  EXPECT_EQ(lived.beats, 1U);
  EXPECT_EQ(lived.how, "exit status 0");
}

TEST(WorkerLife, DoesNotListenToAnotherLife) {
  Lived lived(kSpeaksForAnotherLife);
  lived.loop.run();
  EXPECT_EQ(lived.ready, true);
  EXPECT_TRUE(lived.reports.empty()) << "a stale epoch is ignored";
}

TEST(WorkerLife, EndsAWorkerThatTalksNonsense) {
  Lived lived(kTalksNonsense);
  lived.loop.run();
  EXPECT_EQ(lived.how, "signal 9 (Killed)");
}

TEST(WorkerLife, EndsAWorkerThatHangsUp) {
  Lived lived(kHangsUp);
  lived.loop.run();
  EXPECT_EQ(lived.how, "signal 9 (Killed)");
}

TEST(WorkerLife, TheHelloCarriesTheArena) {
  Lived lived(kWantsTheArena);
  lived.loop.run();
  EXPECT_EQ(lived.ready, true);
  EXPECT_EQ(lived.how, "exit status 0");
}

}  // namespace
}  // namespace heddle::agent
