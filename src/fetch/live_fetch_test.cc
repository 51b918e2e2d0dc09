#include "fetch/live_fetch.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/disk.h"
#include "fetch/model_cache.h"
#include "fetch/outline.h"
#include "fetch/test_pull.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kData = 10'000;

class LiveFetchTest : public TestPull {
 protected:
  LiveFetchTest() {
    const std::string header = R"({"w":{"dtype":"U8","shape":[10000],"data_offsets":[0,10000]}})";
    write("config.json", "{}");
    whole_ = store::safetensors_text(header, pattern(kData));
    write("model.safetensors", whole_);
    options.transfer = {.connections = 1, .piece_bytes = 1000, .record_bytes = 1000};
    const Result<Outline> outline = fetch_outline(name(), options, watch, stop.get_token());
    HEDDLE_CHECK(outline.has_value());
    outline_ = outline->directory;
  }
  Result<std::unique_ptr<LiveFetch>> begin() {
    return LiveFetch::begin(
        {.model = name(), .outline = outline_, .order = order, .options = options},
        models,
        watch,
        stop.get_token());
  }
  [[nodiscard]] std::string read(LiveFetch& live, Range range) const {
    const Result<File> file = live.open("model.safetensors");
    HEDDLE_CHECK(file.has_value());
    std::string text(range.bytes(), '\0');
    HEDDLE_CHECK(file->read(range.begin, std::as_writable_bytes(std::span(text))).has_value());
    return text;
  }

  std::string whole_{};
  fs::path outline_{};
  std::vector<FilePart> order{};
  LiveModels models{};
};

TEST_F(LiveFetchTest, WhatIsWantedFirstIsReadBeforeTheRestHasCome) {
  order = {{.file = "model.safetensors", .range = {7000, 8000}},
           {.file = "model.safetensors", .range = {2500, 3500}}};
  std::mutex held;
  int requests = 0;
  options.transfer.turn = [&](const std::stop_token&) {
    if (++requests > 3) {
      const std::lock_guard wait(held);
    }
  };
  std::unique_lock hold(held);
  auto live = begin();
  ASSERT_TRUE(live.has_value()) << live.error().message;
  for (const FilePart& part : order) {
    ASSERT_TRUE((*live)->await(part.file, part.range).has_value());
    EXPECT_EQ(read(**live, part.range), whole_.substr(part.range.begin, part.range.bytes()));
  }
  hold.unlock();
  const Result<std::optional<fs::path>> ended = (*live)->finish();
  ASSERT_TRUE(ended.has_value()) << ended.error().message;
  const std::optional<fs::path>& directory = *ended;
  ASSERT_TRUE(directory.has_value());
  EXPECT_EQ(*read_text(*directory / "model.safetensors", 20'000), whole_);
  EXPECT_EQ(read(**live, {0, whole_.size()}), whole_) << "where the file has gone does not matter";
  EXPECT_EQ(fs::last_write_time(*directory / "model.safetensors"),
            fs::last_write_time(outline_ / "model.safetensors"));
}

TEST_F(LiveFetchTest, WhatEndsItEndsThoseWhoWait) {
  int requests = 0;
  options.transfer.turn = [&](const std::stop_token&) {
    if (++requests == 3) {
      write("model.safetensors", whole_ + "x");  // Another file than the one that was listed.
    }
  };
  auto live = begin();
  ASSERT_TRUE(live.has_value());
  const Result<void> there = (*live)->await("model.safetensors", {9000, 10'000});
  ASSERT_FALSE(there.has_value());
  EXPECT_THAT(there.error().message, HasSubstr("changed while it was fetched"));
  EXPECT_FALSE((*live)->finish().has_value());
}

TEST_F(LiveFetchTest, AStopKeepsWhatHasCome) {
  int requests = 0;
  options.transfer.turn = [&](const std::stop_token&) {
    if (++requests == 4) {
      stop.request_stop();
    }
  };
  {
    auto live = begin();
    ASSERT_TRUE(live.has_value());
    EXPECT_EQ((*live)->await("model.safetensors", {9000, 10'000}).error().code, Code::kCancelled);
    EXPECT_EQ((*live)->finish().error().code, Code::kCancelled);
  }
  stop = {};
  requests = 0;
  options.transfer.turn = [&](const std::stop_token&) { ++requests; };
  auto live = begin();
  ASSERT_TRUE(live.has_value());
  ASSERT_TRUE((*live)->finish().has_value());
  EXPECT_EQ(requests, 11 - 3);
}

/// Counts the bytes that come.
class LivePartsTest : public LiveFetchTest {
 protected:
  LivePartsTest() {
    options.transfer.took = [this](std::uint64_t bytes, const std::stop_token&) { came_ += bytes; };
  }
  Result<std::unique_ptr<LiveFetch>> begin_part(Range range) {
    return LiveFetch::begin({.model = name(),
                             .outline = outline_,
                             .order = {{.file = "model.safetensors", .range = range}},
                             .part = true,
                             .options = options},
                            models,
                            watch,
                            stop.get_token());
  }
  [[nodiscard]] bool is_listed_incomplete() const {
    const std::vector<CachedModel> cached = cached_models(options.places);
    return cached.size() == 1 && cached[0].name == name() && cached[0].is_incomplete;
  }

  std::atomic<std::uint64_t> came_ = 0;
};

TEST_F(LivePartsTest, PartsComeSideBySideAndNoByteTwice) {
  std::mutex held;
  std::unique_lock hold(held);
  options.transfer.turn = [&](const std::stop_token&) { const std::lock_guard wait(held); };
  auto first = begin_part({0, 6000});
  ASSERT_TRUE(first.has_value()) << first.error().message;
  options.transfer.turn = {};
  auto second = begin_part({4500, 8000});
  ASSERT_TRUE(second.has_value()) << "it waits for no lock: " << second.error().message;
  ASSERT_TRUE((*second)->await("model.safetensors", {4500, 8000}).has_value());
  EXPECT_EQ(read(**second, {4500, 8000}), whole_.substr(4500, 3500));
  EXPECT_EQ(*(*second)->finish(), std::nullopt) << "of the whole there is more";
  EXPECT_EQ(came_, 4000U);
  hold.unlock();
  EXPECT_EQ(*(*first)->finish(), std::nullopt);
  EXPECT_EQ(came_, 8000U) << "the first fetched what the second had not";
  EXPECT_TRUE(is_listed_incomplete());
}

TEST_F(LivePartsTest, WhatHasComeIsThereForTheNext) {
  EXPECT_EQ(*(*begin_part({0, 4000}))->finish(), std::nullopt);
  EXPECT_TRUE(is_listed_incomplete());
  const fs::path part = cached_models(options.places)[0].folder / "model.safetensors.part";
  EXPECT_LT(taken_bytes(part), fs::file_size(part)) << "the rest is a hole";
  came_ = 0;
  const Result<std::optional<fs::path>> rest = (*begin_part({4000, whole_.size()}))->finish();
  ASSERT_TRUE(rest.has_value() && *rest) << "all of it has come";
  EXPECT_EQ(came_, whole_.size() - 4000);
  EXPECT_EQ(*read_text(**rest / "model.safetensors", 20'000), whole_);
  EXPECT_FALSE(is_listed_incomplete());
}

TEST_F(LivePartsTest, WhatNothingReadsIsFetchedAtLast) {
  options.transfer.record_bytes = 100;
  EXPECT_EQ(*(*begin_part({0, 4000}))->finish(), std::nullopt);
  const Result<std::optional<fs::path>> rest = (*begin_part({4000, whole_.size() - 150}))->finish();
  ASSERT_TRUE(rest.has_value() && *rest);
  EXPECT_EQ(came_, whole_.size());
}

TEST_F(LivePartsTest, AStoppedPartLeavesItsWorkToOthers) {
  std::stop_source mine;
  options.transfer.turn = [&](const std::stop_token&) { mine.request_stop(); };
  auto first = LiveFetch::begin({.model = name(),
                                 .outline = outline_,
                                 .order = {{.file = "model.safetensors", .range = {0, 6000}}},
                                 .part = true,
                                 .options = options},
                                models,
                                watch,
                                mine.get_token());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ((*first)->finish().error().code, Code::kCancelled);
  options.transfer.turn = {};
  auto second = begin_part({0, 6000});  // While the first still has the model.
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE((*second)->finish().has_value());
  EXPECT_EQ(came_, 6000U);
}

TEST_F(LivePartsTest, AFileThatChangesMeanwhileIsNotMixed) {
  EXPECT_EQ(*(*begin_part({0, 4000}))->finish(), std::nullopt);
  std::string other = whole_;
  other[5000] ^= 1;
  options.transfer.turn = [&](const std::stop_token&) { write("model.safetensors", other); };
  auto rest = begin_part({4000, whole_.size()});
  ASSERT_TRUE(rest.has_value()) << rest.error().message;
  const auto ended = (*rest)->finish();
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, Code::kCorrupt) << ended.error().message;
}

TEST_F(LivePartsTest, APartThatTheBudgetHasNoRoomForIsRefusedBeforeItsFirstByte) {
  options.budget = 6000;
  auto much = begin_part({0, 9000});
  ASSERT_FALSE(much.has_value());
  EXPECT_EQ(much.error().code, Code::kResourceExhausted);
  EXPECT_EQ(came_, 0U);
}

TEST_F(LiveFetchTest, AModelThatIsAnotherNowIsNotFetched) {
  write("config.json", "{ }");
  const auto live = begin();
  ASSERT_FALSE(live.has_value());
  EXPECT_EQ(live.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(live.error().message, HasSubstr(std::string(kOutlineChanged)));
}

}  // namespace
}  // namespace heddle::fetch
