#include "fetch/url_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUrl = "https://h/models/small";

class UrlCacheTest : public testing::Test {
 protected:
  [[nodiscard]] store::ModelPlaces places() const { return {.url_cache = directory_.path()}; }
  [[nodiscard]] fs::path folder() const { return store::url_folder(places(), kUrl); }
  /// Has files come whose content is their tag; all of them unless `most` says how many. Returns
  /// the names of those that came.
  std::vector<std::string> fetch(const std::map<std::string, std::string>& tags,
                                 std::size_t most = 100) {
    auto place = open_url_place(kUrl, places(), [] {}, {});
    std::vector<Object> wanted;
    for (const auto& [name, tag] : tags) {
      wanted.push_back({.name = name, .bytes = tag.size(), .validator = tag});
    }
    const auto jobs = (*place)->missing("", wanted);
    std::vector<std::string> names;
    for (const Job& job : *jobs) {
      if (names.size() == most) {
        return names;
      }
      store::write_text(job.partial, job.object.validator);
      EXPECT_TRUE((*place)->keep(job).has_value());
      names.push_back(job.object.name);
    }
    const auto directory = (*place)->publish();
    EXPECT_EQ(directory ? *directory : fs::path(), folder());
    return names;
  }

 private:
  store::TempDirectory directory_{};
};

using testing::ElementsAre;

TEST_F(UrlCacheTest, AModelAppearsWhole) {
  EXPECT_THAT(fetch({{"a", "1"}, {"sub/b", "2"}}, 1), ElementsAre("a"));
  EXPECT_FALSE(store::find_model(kUrl, places()).has_value());
  EXPECT_THAT(fetch({{"a", "1"}, {"sub/b", "2"}}), ElementsAre("sub/b"));
  EXPECT_EQ(*store::find_model(kUrl, places()), folder());
  EXPECT_EQ(*store::find_model(std::string(kUrl) + "/", places()), folder());
  EXPECT_EQ(*read_text(folder() / "sub/b", 10), "2");
  EXPECT_TRUE(fetch({{"a", "1"}, {"sub/b", "2"}}).empty());
  EXPECT_FALSE(is_there(incomplete_of(folder())));
}

TEST_F(UrlCacheTest, OnlyWhatChangedIsFetched) {
  fetch({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  EXPECT_THAT(fetch({{"a", "1"}, {"b", "22"}}), ElementsAre("b"));
  EXPECT_EQ(*read_text(folder() / "a", 10), "1");
  EXPECT_EQ(*read_text(folder() / "b", 10), "22");
  EXPECT_FALSE(is_there(folder() / "c"));
}

TEST_F(UrlCacheTest, WhatAnEarlierTryBeganDoesNotStay) {
  fetch({{"a", "1"}, {"b", "2"}}, 1);
  store::write_text(incomplete_of(folder()) / "z.part", "rest");
  fetch({{"b", "2"}});
  EXPECT_FALSE(is_there(folder() / "a"));
  EXPECT_FALSE(is_there(folder() / "z.part"));
}

TEST_F(UrlCacheTest, RecordsAreReadAsTheyWereWritten) {
  const FolderRecord record{.name = kUrl, .files = {{"a b", {7, "\"e\""}}, {"c", {0, ""}}}};
  ASSERT_TRUE(write_record(folder(), record).has_value());
  const auto read = read_record(folder());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->name, kUrl);
  EXPECT_EQ(read->files.at("a b").identity, "\"e\"");
  EXPECT_EQ(read->files.at("a b").bytes, 7U);
  EXPECT_EQ(read->files.size(), 2U);
  for (const char* text :
       {"", "other", "heddle model 1 x\nbad line\n", "heddle model 1 x\n7\te\n"}) {
    store::write_text(folder() / ".source", text);
    EXPECT_FALSE(read_record(folder()).has_value()) << text;
  }
}

}  // namespace
}  // namespace heddle::fetch
