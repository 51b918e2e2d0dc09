#include "fetch/transfer.h"

#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

class TransferTest : public testing::Test {
 protected:
  TransferTest() { source.contents = {{"a", pattern(1000)}, {"b", pattern(95)}, {"c", ""}}; }
  Result<void> run(std::stop_token stop = {}) {
    jobs_.clear();
    for (const auto& [name, content] : source.contents) {
      jobs_.push_back({.object = source.object(name), .partial = path(name)});
    }
    const TransferEvents events{
        .moved = [this](std::size_t job, std::uint64_t bytes) { moved[job] = bytes; },
        .checking = [this](std::size_t job) { checked.insert(job); },
        .done = [this](std::size_t job) -> Result<void> {
          const std::lock_guard lock(mutex_);
          done.insert(job);
          return {};
        }};
    return transfer(source, jobs_, options, events, stop);
  }
  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return directory_.path() / (name + ".part");
  }
  void expect_whole() {
    for (const auto& [name, content] : source.contents) {
      EXPECT_EQ(*read_text(path(name), 10'000), content) << name;
    }
    EXPECT_EQ(done.size(), source.contents.size());
  }

  TestSource source{};
  TransferOptions options{.connections = 4, .piece_bytes = 100};
  std::map<std::size_t, std::uint64_t> moved{};
  std::set<std::size_t> checked{};
  std::set<std::size_t> done{};

 private:
  store::TempDirectory directory_{};
  std::vector<Job> jobs_{};
  std::mutex mutex_{};
};

TEST_F(TransferTest, FetchesPieces) {
  const Result<void> all = run();
  ASSERT_TRUE(all.has_value()) << all.error().message;
  expect_whole();
  EXPECT_EQ(source.reads, 11);
  EXPECT_EQ(moved, (std::map<std::size_t, std::uint64_t>{{0, 1000}, {1, 95}, {2, 0}}));
}

TEST_F(TransferTest, GoesOnAfterAFailure) {
  source.before = [&](const Object& object, Range range) -> Result<void> {
    return object.name == "a" && range.begin == 500
               ? Result<void>(Error{Code::kUnavailable, "it went away"})
               : Result<void>();
  };
  options.connections = 1;
  const Result<void> broken = run();
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().message, "it went away");
  EXPECT_EQ(source.reads, 6);
  source.before = [](const Object&, Range) { return Result<void>(); };
  source.reads = 0;
  ASSERT_TRUE(run().has_value());
  expect_whole();
  EXPECT_EQ(source.reads, 6);  // Five pieces of one, one of the other.
}

TEST_F(TransferTest, AServerWithoutRangesIsReadInOneStream) {
  source.ignores_ranges = true;
  const Result<void> all = run();
  ASSERT_TRUE(all.has_value()) << all.error().message;
  expect_whole();
}

TEST_F(TransferTest, AWrongDigestIsFetchedOnceMore) {
  options.connections = 1;
  bool spoiled = false;
  const std::string right = source.contents["a"];
  source.before = [&](const Object& object, Range range) -> Result<void> {
    source.contents["a"][10] = right[10];
    if (object.name == "a" && range.begin == 0 && !std::exchange(spoiled, true)) {
      ++source.contents["a"][10];
    }
    return {};
  };
  ASSERT_TRUE(run().has_value());
  expect_whole();

  source.before = [&](const Object& object, Range) -> Result<void> {
    source.contents["b"][3] = object.name == "b" ? '!' : '?';
    return {};
  };
  const Result<void> wrong = run();
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  EXPECT_THAT(wrong.error().message, HasSubstr("b came with the SHA-256"));
}

TEST_F(TransferTest, AStopKeepsWhatCame) {
  std::stop_source stop;
  source.before = [&](const Object&, Range range) -> Result<void> {
    if (range.begin == 500) {
      stop.request_stop();
    }
    return {};
  };
  options.connections = 1;
  EXPECT_EQ(run(stop.get_token()).error().code, Code::kCancelled);
  source.before = [](const Object&, Range) { return Result<void>(); };
  source.reads = 0;
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(source.reads, 6);
}

TEST_F(TransferTest, WhatItsOwnerSaysEndsIt) {
  source.contents = {{"a", "x"}};
  const std::vector<Job> jobs{{.object = source.object("a"), .partial = path("a")}};
  const Result<void> ended = transfer(source,
                                      jobs,
                                      options,
                                      {.moved = [](std::size_t, std::uint64_t) {},
                                       .checking = [](std::size_t) {},
                                       .done = [](std::size_t) -> Result<void> {
                                         return Error{Code::kResourceExhausted, "the disk is full"};
                                       }},
                                      {});
  EXPECT_EQ(ended.error().message, "the disk is full");
}

}  // namespace
}  // namespace heddle::fetch
