#include "fetch/live_fetch.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/outline.h"
#include "fetch/test_pull.h"
#include "store/file.h"

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
    const Result<store::File> file = live.open("model.safetensors");
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
  EXPECT_EQ(*store::read_text(*directory / "model.safetensors", 20'000), whole_);
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

TEST_F(LiveFetchTest, AModelThatIsAnotherNowIsNotFetched) {
  write("config.json", "{ }");
  const auto live = begin();
  ASSERT_FALSE(live.has_value());
  EXPECT_EQ(live.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(live.error().message, HasSubstr(std::string(kOutlineChanged)));
}

}  // namespace
}  // namespace heddle::fetch
