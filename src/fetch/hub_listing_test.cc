#include "fetch/hub_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kSha256(64, 'b');

TEST(HubListing, ReadsTheCommit) {
  EXPECT_EQ(*parse_hub_revision(R"({"id": "x/y", "sha": ")" + kCommit + "\"}", "h"), kCommit);
  for (const char* json : {"", "[]", "{}", R"({"sha": "../../etc"})", R"({"sha": 3})"}) {
    const auto read = parse_hub_revision(json, "https://h/api");
    ASSERT_FALSE(read.has_value()) << json;
    EXPECT_THAT(read.error().message, HasSubstr("https://h/api tells no commit"));
  }
}

TEST(HubListing, ReadsFiles) {
  const auto read = parse_hub_tree(
      R"([{"type": "directory", "path": "1_Pooling", "oid": "x", "size": 0},
          {"type": "file", "path": "1_Pooling/config.json", "oid": ")" +
          kCommit + R"(", "size": 12},
          {"type": "file", "path": "m.safetensors", "oid": ")" +
          kCommit + R"(", "size": 134, "lfs": {"oid": ")" + kSha256 +
          R"(", "size": 5000000000, "pointerSize": 134}}])",
      "h");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_THAT(*read,
              testing::ElementsAre(
                  Object{.name = "1_Pooling/config.json", .bytes = 12, .git_sha1 = kCommit},
                  Object{.name = "m.safetensors", .bytes = 5'000'000'000, .sha256 = kSha256}));
}

TEST(HubListing, RefusesWhatMakesNoSense) {
  const auto message = [](const std::string& json) {
    const auto read = parse_hub_tree(json, "h");
    return read ? std::string("none") : read.error().message;
  };
  EXPECT_THAT(message("{}"), HasSubstr("h is no list of files"));
  EXPECT_THAT(message(R"([{"type": "file", "path": "../x", "size": 1}])"),
              HasSubstr("h names \"../x\", which is not below the model's folder"));
  EXPECT_THAT(message(R"([{"type": "file", "path": "x", "size": -1}])"),
              HasSubstr("x has no size"));
  EXPECT_THAT(message(R"([{"type": "file", "path": "x", "size": 1, "lfs": {"oid": "../b"}}])"),
              HasSubstr("the SHA-256 of x is \"../b\""));
}

TEST(HubListing, FindsTheNextPage) {
  EXPECT_EQ(next_page("<https://h/a?cursor=1>; rel=\"next\""), "https://h/a?cursor=1");
  EXPECT_EQ(next_page("<https://h/0>; rel=\"prev\", <https://h/2>; rel=\"next\""), "https://h/2");
  EXPECT_EQ(next_page(""), "");
  EXPECT_EQ(next_page("<https://h/0>; rel=\"prev\""), "");
  EXPECT_EQ(next_page("><"), "");
}

}  // namespace
}  // namespace heddle::fetch
