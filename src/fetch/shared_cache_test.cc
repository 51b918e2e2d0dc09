#include "fetch/shared_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/digest.h"
#include "fetch/file_lock.h"
#include "fetch/hub_cache.h"
#include "fetch/test_source.h"
#include "fetch/url_cache.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

constexpr const char* kUrl = "https://h/models/small";
constexpr const char* kHub = "acme/small";
const std::string kCommit(40, 'd');
const std::string kText = "weights of a model";
constexpr Instant kNow{std::chrono::hours(1)};

class SharedCacheTest : public testing::Test {
 protected:
  SharedCacheTest() : cache(places()) {}

  [[nodiscard]] store::ModelPlaces places() const {
    return {.hub_cache = directory_.path() / "hub", .url_cache = directory_.path() / "own"};
  }
  /// Puts a model of one file into a cache, but for its last step where it is not to be whole.
  void put(const std::string& model, const Object& object, bool whole = true) const {
    const auto place = open_place(*parse_source_name(model), places(), [] {}, {});
    const auto jobs = (*place)->missing(kCommit, {object});
    for (const Job& job : *jobs) {
      store::write_text(job.partial, kText);
      ASSERT_TRUE(!whole || (*place)->keep(job).has_value());
    }
    ASSERT_TRUE(!whole || (*place)->publish().has_value());
  }
  static Object tagged() {
    return {.name = "sub/w.safetensors", .bytes = kText.size(), .validator = "\"tag\""};
  }
  static Object digested() {
    return {.name = "sub/w.safetensors", .bytes = kText.size(), .sha256 = sha256_of(kText)};
  }
  static SharedCache::Wanted wanted(const std::string& model, const Object& object, Range range) {
    return {.model = model,
            .file = object.name,
            .bytes = object.bytes,
            .identity = object.identity(),
            .range = range};
  }
  Code refusal(const SharedCache::Wanted& wanted) {
    const Result<std::string> read = cache.read(wanted, kNow);
    EXPECT_FALSE(read.has_value());
    return read ? Code::kCancelled : read.error().code;
  }

 private:
  store::TempDirectory directory_{};

 protected:
  SharedCache cache;
};

TEST_F(SharedCacheTest, GivesRangesOfBothCaches) {
  put(kUrl, tagged());
  put(kHub, digested());
  EXPECT_EQ(*cache.read(wanted(kUrl, tagged(), {0, kText.size()}), kNow), kText);
  EXPECT_EQ(*cache.read(wanted(kUrl, tagged(), {8, 10}), kNow), "of");
  EXPECT_EQ(*cache.read(wanted(kHub, digested(), {8, 10}), kNow), "of");
}

TEST_F(SharedCacheTest, SaysWhatItHas) {
  put(kUrl, tagged());
  put(kHub, digested());
  const Result<Listing> own = cache.list(kUrl);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_THAT(own->objects, testing::ElementsAre(tagged()));
  const Result<Listing> hub = cache.list(kHub);
  ASSERT_TRUE(hub) << hub.error().message;
  EXPECT_EQ(hub->revision, kCommit);
  EXPECT_THAT(hub->objects, testing::ElementsAre(digested()));
  EXPECT_EQ(cache.list("acme/small@" + kCommit)->objects, hub->objects);
}

TEST_F(SharedCacheTest, WhatIsNotWholeIsNotThere) {
  put(kUrl, tagged(), /*whole=*/false);
  put(kHub, digested(), /*whole=*/false);
  for (const auto& [model, object] : {std::pair(kUrl, tagged()), std::pair(kHub, digested())}) {
    EXPECT_EQ(cache.list(model).error().code, Code::kNotFound);
    EXPECT_EQ(refusal(wanted(model, object, {0, 1})), Code::kNotFound);
  }
}

TEST_F(SharedCacheTest, OtherBytesAreRefused) {
  put(kUrl, tagged());
  put(kHub, digested());
  Object other = tagged();
  other.validator = "\"later\"";
  EXPECT_EQ(refusal(wanted(kUrl, other, {0, 1})), Code::kNotFound);
  other.validator.clear();
  EXPECT_EQ(refusal(wanted(kUrl, other, {0, 1})), Code::kNotFound) << "nothing identifies it";
  other = digested();
  other.sha256 = sha256_of("others");
  EXPECT_EQ(refusal(wanted(kHub, other, {0, 1})), Code::kNotFound);
  other = digested();
  other.bytes -= 1;
  EXPECT_EQ(refusal(wanted(kHub, other, {0, 1})), Code::kNotFound);
  EXPECT_EQ(refusal(wanted("acme/other", digested(), {0, 1})), Code::kNotFound);
}

TEST_F(SharedCacheTest, NothingOutsideTheModelIsRead) {
  put(kUrl, tagged());
  put(kHub, digested());
  Object outside = tagged();
  outside.name = "../../secret";
  EXPECT_EQ(refusal(wanted(kUrl, outside, {0, 1})), Code::kNotFound);
  outside = digested();
  outside.sha256 = "../../../secret";
  EXPECT_EQ(refusal(wanted(kHub, outside, {0, 1})), Code::kNotFound);
  EXPECT_EQ(refusal(wanted("file:///etc", tagged(), {0, 1})), Code::kInvalidArgument);
  EXPECT_EQ(refusal(wanted("/etc", tagged(), {0, 1})), Code::kInvalidArgument);
  EXPECT_EQ(refusal(wanted("../..", tagged(), {0, 1})), Code::kInvalidArgument);
  EXPECT_EQ(cache.list("file:///etc").error().code, Code::kInvalidArgument);
}

TEST_F(SharedCacheTest, RangesLieInTheFile) {
  put(kUrl, tagged());
  EXPECT_EQ(refusal(wanted(kUrl, tagged(), {0, kText.size() + 1})), Code::kInvalidArgument);
  EXPECT_EQ(refusal(wanted(kUrl, tagged(), {3, 2})), Code::kInvalidArgument);
  EXPECT_EQ(*cache.read(wanted(kUrl, tagged(), {3, 3}), kNow), "");
}

TEST_F(SharedCacheTest, HoldsWhatIsReadUntilItIsLetGo) {
  put(kUrl, tagged());
  ASSERT_TRUE(cache.read(wanted(kUrl, tagged(), {0, 1}), kNow));
  const auto use = use_of(store::url_folder(places(), kUrl));
  EXPECT_FALSE(FileLock::now(use).has_value());
  EXPECT_TRUE(cache.let_go(kNow - std::chrono::seconds(1)));
  EXPECT_FALSE(FileLock::now(use).has_value());
  EXPECT_FALSE(cache.let_go(kNow));
  EXPECT_TRUE(FileLock::now(use).has_value());
}

TEST_F(SharedCacheTest, WhatIsBeingRemovedIsNotThere) {
  put(kUrl, tagged());
  const auto removes = FileLock::now(use_of(store::url_folder(places(), kUrl)));
  EXPECT_EQ(refusal(wanted(kUrl, tagged(), {0, 1})), Code::kNotFound);
}

}  // namespace
}  // namespace heddle::fetch
