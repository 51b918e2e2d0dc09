#include "engine/step_graphs.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

struct Recorded final : device::Graph {
  std::string work{};
};

/// Writes down what it does: "a" for work called a, "[a]" for its replay.
class Stream final : public device::Stream {
 public:
  void work(const std::string& what) { (recording_ ? recorded_ : done) += what; }
  void copy(std::byte* /*target*/, const std::byte* /*source*/, std::size_t /*bytes*/) override {}
  Result<void> synchronize() override { return {}; }
  bool begin_capture() override {
    recording_ = records;
    return records;
  }
  Result<std::unique_ptr<device::Graph>> end_capture() override {
    recording_ = false;
    auto graph = std::make_unique<Recorded>();
    graph->work = std::exchange(recorded_, {});
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
  std::string done{};

 private:
  bool recording_ = false;
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
  graphs.clear();
  graphs.run(stream, {1}, [&] { stream.work("c"); });
  EXPECT_EQ(stream.done, "a[a][a]bc");
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

}  // namespace
}  // namespace heddle::engine
