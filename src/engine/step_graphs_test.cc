#include "engine/step_graphs.h"

#include <string>

#include <gtest/gtest.h>

#include "base/log_tail.h"

namespace heddle::engine {
namespace {

struct Recorded final : device::Graph {
  Recorded() = default;
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  [[nodiscard]] std::uint64_t bytes() const override { return size; }
  ~Recorded() override { *ended += 1; }
  std::string work{};
  std::uint64_t size = 0;
  int* ended = nullptr;
};

/// Writes down what it does: "a" for work called a, "[a]" for its replay.
class Stream final : public device::Stream {
 public:
  void work(const std::string& what) { (capturing_ ? recorded_ : done) += what; }
  void copy(std::byte* /*target*/, const std::byte* /*source*/, std::size_t /*bytes*/) override {}
  Result<void> synchronize() override { return {}; }
  bool begin_capture() override {
    capturing_ = records;
    return records;
  }
  Result<std::unique_ptr<device::Graph>> end_capture() override {
    capturing_ = false;
    auto graph = std::make_unique<Recorded>();
    graph->work = std::exchange(recorded_, {});
    graph->size = size;
    graph->ended = &ended;
    if (refuses) {
      return Error{Code::kInvalidArgument, "cannot be recorded"};
    }
    return std::unique_ptr<device::Graph>(std::move(graph));
  }
  void replay(const device::Graph& graph) override {
    done += "[" + static_cast<const Recorded&>(graph).work + "]";
  }

  bool records = true;
  bool refuses = false;
  std::uint64_t size = 0;  ///< Of what is recorded from now on.
  int ended = 0;           ///< CUDA graphs.
  std::string done{};

 private:
  bool capturing_ = false;
  std::string recorded_{};
};

TEST(StepGraphs, AStepIsRunThenRecordedThenReplayed) {
  Stream stream;
  StepGraphs graphs;
  for (int i = 0; i < 3; ++i) {
    graphs.run(stream, {1}, [&] { stream.work("a"); });
  }
  EXPECT_EQ(stream.done, "a[a][a]");
  graphs.run(stream, {2}, [&] { stream.work("b"); });
  EXPECT_EQ(stream.done, "a[a][a]b");
  EXPECT_EQ(graphs.recorded(), 1U);
  graphs.forget(1);
  graphs.run(stream, {1}, [&] { stream.work("c"); });
  EXPECT_EQ(stream.done, "a[a][a]bc");
}

TEST(StepGraphs, TheFirstStepThatCannotBeRecordedIsToldWithTheReason) {
  const std::uint64_t before = log::tail(0).empty() ? 0 : log::tail(0).back().number;
  Stream stream;
  stream.refuses = true;
  StepGraphs graphs;
  for (const std::uint64_t key : {1U, 2U, 1U, 2U, 1U}) {
    graphs.run(stream, {key}, [&] { stream.work("a"); });
  }
  const auto said = log::tail(before);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said.front().text.find("cannot be recorded"), std::string::npos);
}

TEST(StepGraphs, WhatCannotBeRecordedIsAlwaysRun) {
  for (const bool records : {false, true}) {
    Stream stream;
    stream.records = records;
    stream.refuses = true;
    StepGraphs graphs;
    for (int i = 0; i < 4; ++i) {
      graphs.run(stream, {1}, [&] { stream.work("a"); });
    }
    EXPECT_EQ(stream.done, "aaaa");
    EXPECT_EQ(graphs.recorded(), 0U);
  }
}

TEST(StepGraphs, ThoseNotUsedForLongestAreForgotten) {
  Stream stream;
  StepGraphs graphs;
  const auto run = [&](std::uint64_t key) { graphs.run(stream, {key}, [] {}); };
  for (int twice = 0; twice < 2; ++twice) {
    for (std::uint64_t key = 0; key < StepGraphs::kMost; ++key) {
      run(key);
    }
  }
  EXPECT_EQ(graphs.recorded(), StepGraphs::kMost);
  run(0);
  run(1000);
  EXPECT_EQ(graphs.recorded(), StepGraphs::kMost - 1);
  stream.done.clear();
  run(0);
  run(1);
  EXPECT_EQ(stream.done, "[]") << "1 was the one used longest ago";
}

TEST(StepGraphs, ThoseOfOneModelAreForgottenAlone) {
  Stream stream;
  StepGraphs graphs;
  const auto run = [&](GraphKey key) { graphs.run(stream, std::move(key), [] {}); };
  for (int twice = 0; twice < 2; ++twice) {
    for (const std::uint64_t shape : {1U, 2U}) {
      run({7, shape});
      run({8, shape});
    }
  }
  EXPECT_EQ(graphs.recorded(), 4U);
  graphs.forget(7);
  EXPECT_EQ(graphs.recorded(), 2U);
  stream.done.clear();
  run({8, 1});
  EXPECT_EQ(stream.done, "[]");
}

TEST(StepGraphs, KeepWithinTheirBytesThoseUsedLast) {
  Stream stream;
  stream.size = 10;
  StepGraphs graphs;
  graphs.set_most(35);
  const auto run_twice = [&](std::uint64_t key) {
    graphs.run(stream, {key}, [] {});
    graphs.run(stream, {key}, [] {});
  };
  for (const std::uint64_t key : {1U, 2U, 3U, 1U, 4U}) {
    run_twice(key);
  }
  EXPECT_EQ(graphs.recorded(), 3U);
  EXPECT_EQ(graphs.bytes(), 30U);
  stream.done.clear();
  for (const std::uint64_t key : {1U, 3U, 4U}) {
    graphs.run(stream, {key}, [] {});
  }
  EXPECT_EQ(stream.done, "[][][]") << "2 was the one used longest ago";

  graphs.set_most(15);
  EXPECT_EQ(graphs.recorded(), 1U);
  stream.done.clear();
  graphs.run(stream, {4}, [] {});
  EXPECT_EQ(stream.done, "[]");
}

TEST(StepGraphs, WhatDoesNotFitIsRunUntilThereIsRoom) {
  Stream stream;
  stream.size = 10;
  StepGraphs graphs;
  const auto run = [&](int times) {
    stream.done.clear();
    for (int i = 0; i < times; ++i) {
      graphs.run(stream, {1}, [&] { stream.work("a"); });
    }
    return stream.done;
  };
  graphs.set_most(0);
  EXPECT_EQ(run(3), "aaa");
  graphs.set_most(9);
  EXPECT_EQ(run(3), "aaa");
  EXPECT_EQ(graphs.bytes(), 0U);
  graphs.set_most(10);
  EXPECT_EQ(run(3), "[a][a][a]");
  graphs.set_most(0);
  EXPECT_EQ(run(2), "aa");
  EXPECT_EQ(graphs.recorded(), 0U);
}

// The stream may still be at the CUDA graph that makes room for the next.
TEST(StepGraphs, WhatTheStreamMayStillRunEndsOneRunLater) {
  Stream stream;
  stream.size = 10;
  StepGraphs graphs;
  graphs.set_most(10);
  for (const std::uint64_t key : {1U, 1U, 2U}) {
    graphs.run(stream, {key}, [] {});
  }
  stream.ended = 0;
  graphs.run(stream, {2}, [] {});
  EXPECT_EQ(graphs.recorded(), 1U);
  EXPECT_EQ(stream.ended, 0) << "1 was enqueued before, and nobody has waited";
  graphs.run(stream, {2}, [] {});
  EXPECT_EQ(stream.ended, 1);
}

}  // namespace
}  // namespace heddle::engine
