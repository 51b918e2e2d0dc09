#include "fetch/model_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/file_lock.h"
#include "fetch/test_source.h"
#include "fetch/url_cache.h"
#include "store/test_files.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class ModelCacheTest : public testing::Test {
 protected:
  [[nodiscard]] store::ModelPlaces places() const {
    return {.hub_cache = directory_.path() / "hub", .url_cache = directory_.path() / "own/models"};
  }
  [[nodiscard]] fs::path folder(const std::string& name) const {
    return store::url_folder(places(), name);
  }
  /// A model of a megabyte that was wanted at this time.
  void add(const std::string& name, std::int64_t used_s, bool whole = true) const {
    const fs::path at = whole ? folder(name) : incomplete_of(folder(name));
    store::write_text(at / "w", std::string(1U << 20U, 'x'));
    EXPECT_TRUE(write_record(at, {.name = name}).has_value());
    set_time(at / ".source", used_s);
  }
  static void set_time(const fs::path& path, std::int64_t time_s) {
    const std::array<timespec, 2> times{
        {{.tv_sec = time_s, .tv_nsec = 0}, {.tv_sec = time_s, .tv_nsec = 0}}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0);
  }
  static constexpr std::uint64_t kMega = 1'100'000;  ///< Of each, and some to spare.

 private:
  store::TempDirectory directory_{};
};

TEST_F(ModelCacheTest, ListsBothCaches) {
  add("https://h/b", 1000);
  add("https://h/c", 1000, false);
  store::write_text(places().hub_cache / "models--acme--x--y/blobs/1", std::string(9000, 'x'));
  fs::create_directories(places().hub_cache / "models--acme--x--y/snapshots/1");
  const std::vector<CachedModel> models = cached_models(places());
  ASSERT_EQ(models.size(), 3U);
  EXPECT_EQ(models[0].name, "acme/x--y");
  EXPECT_TRUE(models[0].of_hub);
  EXPECT_FALSE(models[0].is_incomplete);
  EXPECT_GE(models[0].bytes, 9000U);
  EXPECT_EQ(models[1].name, "https://h/b");
  EXPECT_EQ(models[1].used_ns, 1000 * 1'000'000'000LL);
  EXPECT_FALSE(models[1].is_incomplete);
  EXPECT_TRUE(models[2].is_incomplete);
}

TEST_F(ModelCacheTest, WhatWasUsedLongestAgoGoes) {
  add("https://h/a", 3000);
  add("https://h/b", 1000);
  add("https://h/c", 2000);
  EXPECT_TRUE(make_room(places(), 10 * kMega, kMega, folder("https://h/new"))->empty());
  EXPECT_THAT(*make_room(places(), 3 * kMega, kMega, folder("https://h/new")),
              ElementsAre("https://h/b"));
  EXPECT_FALSE(is_there(folder("https://h/b")));
  // Finding a model is using it.
  ASSERT_TRUE(store::find_model("https://h/c", places()).has_value());
  EXPECT_THAT(*make_room(places(), 2 * kMega, kMega, folder("https://h/new")),
              ElementsAre("https://h/a"));
}

TEST_F(ModelCacheTest, WhatIsBeingFetchedStays) {
  add("https://h/a", 1000, false);
  add("https://h/b", 2000);
  const auto held = FileLock::now(lock_of(folder("https://h/a")));
  EXPECT_THAT(*make_room(places(), 2 * kMega, kMega, folder("https://h/new")),
              ElementsAre("https://h/b"));
  const auto full = make_room(places(), 2 * kMega, 2 * kMega, folder("https://h/new"));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_THAT(full.error().message, testing::HasSubstr("do not fit into the budget of 2.10 MiB"));
  EXPECT_FALSE(make_room(places(), kMega, kMega, folder("https://h/a")).has_value());
}

TEST_F(ModelCacheTest, OutlinesCountAndGoWithTheirModels) {
  const auto outline = [&](const std::string& name) {
    store::ModelPlaces beside = places();
    beside.url_cache = outlines_folder(places());
    const fs::path at = store::url_folder(beside, name);
    store::write_text(at / "tokenizer.json", std::string(1U << 20U, 'x'));
    EXPECT_TRUE(write_record(at, {.name = name}).has_value());
    return at;
  };
  add("https://h/a", 2000);
  const fs::path of_model = outline("https://h/a");
  const fs::path shared = of_model / "config.json";
  fs::create_hard_link(folder("https://h/a") / "w", shared);
  const fs::path of_hub = outline("acme/b");
  EXPECT_TRUE(make_room(places(), 4 * kMega, kMega, folder("https://h/new"))->empty())
      << "what the cache has as well counts once";
  EXPECT_THAT(*make_room(places(), 2 * kMega, kMega, folder("https://h/new")),
              ElementsAre("https://h/a"));
  EXPECT_FALSE(is_there(of_model));
  EXPECT_TRUE(is_there(of_hub)) << "servers do not say that they hold it";
  EXPECT_FALSE(make_room(places(), kMega, kMega, folder("https://h/new")).has_value());
}

TEST_F(ModelCacheTest, WhatAServerHoldsStays) {
  const SourceName name{.kind = SourceKind::kHttp, .text = "https://h/a"};
  add(name.text, 1000);
  auto first = hold_in_cache(name, places());
  auto second = hold_in_cache(name, places());
  ASSERT_TRUE(first.has_value() && second.has_value()) << "servers share it";
  first->reset();
  const auto full = make_room(places(), kMega, kMega, folder("https://h/new"));
  ASSERT_FALSE(full.has_value());
  EXPECT_THAT(full.error().message, testing::HasSubstr("as servers use it"));
  second->reset();
  EXPECT_THAT(*make_room(places(), kMega, kMega, folder("https://h/new")), ElementsAre(name.text));
}

TEST_F(ModelCacheTest, OpensEachKindOfPlace) {
  EXPECT_TRUE(
      open_place({.kind = SourceKind::kHub, .repo = "a/b", .revision = "main"}, places(), [] {}, {})
          .has_value());
  EXPECT_TRUE(is_there(places().hub_cache / ".locks/models--a--b/heddle.lock"));
  EXPECT_TRUE(
      open_place({.kind = SourceKind::kS3, .text = "s3://b/p"}, places(), [] {}, {}).has_value());
  EXPECT_TRUE(is_there(lock_of(folder("s3://b/p"))));
}

}  // namespace
}  // namespace heddle::fetch
