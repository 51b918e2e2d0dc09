#include "fetch/incoming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/ranged_read.h"
#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;
using Kind = Work::Kind;

/// Two objects of 100 bytes that come in requests of 40 and are noted by tens.
class IncomingTest : public testing::Test {
 protected:
  IncomingTest() {
    for (const char* name : {"a", "b"}) {
      source.contents[name] = pattern(100);
      jobs.push_back({.object = source.object(name), .partial = directory.path() / name});
    }
  }
  Incoming& incoming() {
    if (!incoming_) {
      incoming_.emplace(jobs,
                        IncomingOptions{.piece_bytes = 40,
                                        .record_bytes = 10,
                                        .digest_tries = 1,
                                        .keep = [this](std::size_t job) -> Result<void> {
                                          kept.push_back(job);
                                          return {};
                                        },
                                        .on_stream = [this](std::size_t) { ++streams; }});
      HEDDLE_CHECK(incoming_->open().has_value());
    }
    return *incoming_;
  }
  OrderId begin(const std::vector<Part>& parts) {
    return incoming().begin(
        parts, {.moved = [this](std::size_t job, std::uint64_t bytes) { moved[job] = bytes; }});
  }
  /// Fetches what was claimed, and says so.
  void fetch(OrderId order, const Work& work) {
    const std::string& text = source.contents.at(jobs[work.job].object.name);
    const Result<bool> put = incoming().put(
        work, work.range.begin, bytes_of(text.substr(work.range.begin, work.range.bytes())));
    ASSERT_TRUE(put.has_value());
    incoming().done(order, work, {});
  }
  /// What an order is given to do until nothing is left.
  std::vector<Range> fetch_all(OrderId order) {
    std::vector<Range> ranges;
    while (const std::optional<Work> work = incoming().claim(order)) {
      if (work->kind == Kind::kFinish) {
        incoming().done(order, *work, incoming().finish(*work, {}));
        continue;
      }
      ranges.push_back(work->range);
      fetch(order, *work);
    }
    return ranges;
  }

  TestSource source{};
  store::TempDirectory directory{};
  std::vector<Job> jobs{};
  std::vector<std::size_t> kept{};
  std::map<std::size_t, std::uint64_t> moved{};
  int streams = 0;

 private:
  std::optional<Incoming> incoming_{};
};

TEST_F(IncomingTest, WhatIsWantedComesFirstAndNothingElse) {
  const std::vector<Part> parts{{.job = 0, .range = {72, 85}},
                                {.job = 0, .range = {85, 95}},
                                {.job = 0, .range = {0, 5}},
                                {.job = 0, .range = {3, 55}}};
  EXPECT_EQ(incoming().bytes_of(parts), (std::map<std::size_t, std::uint64_t>{{0, 90}}));
  const OrderId order = begin(parts);
  EXPECT_EQ(fetch_all(order), (std::vector<Range>{{70, 80}, {80, 100}, {0, 40}, {40, 60}}));
  EXPECT_EQ(incoming().await_work(order, {}), std::nullopt) << "all of it is there";
  EXPECT_TRUE(incoming().await(order, {.job = 0, .range = {3, 55}}, {}).has_value());
  EXPECT_EQ(moved, (std::map<std::size_t, std::uint64_t>{{0, 90}}));
  EXPECT_EQ(incoming().missing_bytes(), 110U);
  EXPECT_TRUE(kept.empty());
}

TEST_F(IncomingTest, NothingIsFetchedByTwo) {
  const OrderId first = begin({{.job = 0, .range = {0, 60}}});
  const OrderId second = begin({{.job = 0, .range = {20, 100}}});
  const std::optional<Work> work = incoming().claim(first);
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(work->range, (Range{0, 40}));
  EXPECT_EQ(fetch_all(second), (std::vector<Range>{{40, 80}, {80, 100}}));
  EXPECT_TRUE(incoming().others_wait(second)) << "for what the other fetches";
  EXPECT_TRUE(incoming().others_wait(first));
  fetch(first, *work);
  EXPECT_EQ(fetch_all(second), std::vector<Range>{}) << "it has its digest compared";
  EXPECT_EQ(kept, std::vector<std::size_t>{0});
  EXPECT_EQ(incoming().await_work(first, {}), std::nullopt);
  EXPECT_FALSE(incoming().others_wait(second));
  EXPECT_FALSE(incoming().whole()) << "nobody wanted the other file";
  (void)fetch_all(begin(incoming().missing()));
  EXPECT_TRUE(incoming().whole());
  EXPECT_EQ(*read_text(jobs[0].partial, 1000), source.contents["a"]);
}

TEST_F(IncomingTest, WhatOneFailsToFetchIsLeftToOthers) {
  const OrderId first = begin({{.job = 0, .range = {0, 40}}});
  const OrderId second = begin({{.job = 0, .range = {0, 40}}});
  const std::optional<Work> work = incoming().claim(first);
  ASSERT_TRUE(work.has_value());
  EXPECT_FALSE(incoming().claim(second).has_value());
  ASSERT_TRUE(incoming().put(*work, 0, bytes_of(source.contents["a"].substr(0, 15))).has_value());
  incoming().done(first, *work, Error{Code::kUnavailable, "it went away"});
  EXPECT_EQ(incoming().failure(first)->message, "it went away");
  EXPECT_EQ(incoming().await(first, {.job = 0, .range = {20, 30}}, {}).error().message,
            "it went away");
  EXPECT_FALSE(incoming().failure(second).has_value());
  EXPECT_EQ(fetch_all(second), (std::vector<Range>{{10, 40}})) << "a record had come";
  EXPECT_FALSE(incoming().spoilt());
}

TEST_F(IncomingTest, WithoutRangesAFileIsReadFromItsFirstByteToTheLastThatIsWanted) {
  const OrderId order = begin({{.job = 0, .range = {50, 60}}});
  const std::optional<Work> piece = incoming().claim(order);
  ASSERT_TRUE(piece.has_value());
  const OrderId later = begin({{.job = 0, .range = {60, 75}}});
  const std::optional<Work> other = incoming().claim(later);
  incoming().done(order, *piece, Error{Code::kFailedPrecondition, std::string(kIgnoresRanges)});
  EXPECT_FALSE(incoming().claim(order).has_value()) << "a request for a part is still under way";
  incoming().done(later, *other, Error{Code::kFailedPrecondition, std::string(kIgnoresRanges)});
  const std::optional<Work> stream = incoming().claim(order);
  ASSERT_TRUE(stream.has_value());
  EXPECT_EQ(stream->kind, Kind::kStream);
  EXPECT_EQ(stream->range, (Range{0, 100}));
  EXPECT_FALSE(incoming().claim(later).has_value()) << "one stream is enough";
  const std::string& text = source.contents["a"];
  EXPECT_FALSE(*incoming().put(*stream, 0, bytes_of(text.substr(0, 64))));
  EXPECT_TRUE(incoming().await(order, {.job = 0, .range = {50, 60}}, {}).has_value());
  EXPECT_TRUE(*incoming().put(*stream, 64, bytes_of(text.substr(64, 20))));
  incoming().done(order, *stream, {});
  EXPECT_EQ(incoming().await_work(order, {}), std::nullopt);
  EXPECT_EQ(incoming().await_work(later, {}), std::nullopt);
  EXPECT_EQ(streams, 1);
}

TEST_F(IncomingTest, AnotherDigestEndsAllWhoReadTheFile) {
  const OrderId early = begin({{.job = 0, .range = {0, 100}}});
  const OrderId apart = begin({{.job = 1, .range = {0, 100}}});
  source.contents["a"][17] ^= 1;
  (void)fetch_all(early);
  EXPECT_THAT(incoming().failure(early)->message, HasSubstr("a came with the SHA-256"));
  EXPECT_FALSE(incoming().failure(apart).has_value());
  EXPECT_TRUE(incoming().spoilt());
  EXPECT_EQ(incoming().missing_bytes(), 200U) << "nothing of it is kept";
}

TEST_F(IncomingTest, AStopEndsWhoWaits) {
  const OrderId order = begin({{.job = 0, .range = {0, 40}}});
  (void)incoming().claim(order);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(incoming().await_work(order, stop.get_token()), std::nullopt);
  EXPECT_EQ(incoming().await(order, {.job = 0, .range = {0, 5}}, stop.get_token()).error().code,
            Code::kCancelled);
}

TEST_F(IncomingTest, WhatIsKnownIsNotFetched) {
  ASSERT_TRUE(incoming().seed(0, bytes_of(source.contents["a"].substr(0, 27))).has_value());
  EXPECT_EQ(fetch_all(begin({{.job = 0, .range = {0, 40}}})), (std::vector<Range>{{20, 40}}));
}

}  // namespace
}  // namespace heddle::fetch
