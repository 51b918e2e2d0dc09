#include "fetch/http_source.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/test_source.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

class HttpSourceTest : public testing::Test {
 protected:
  Result<Listing> list() {
    const TestServer server([this](const std::string& head) {
      const std::size_t end = head.find(' ', 4);
      const auto found = files.find(head.substr(4, end - 4));
      return found == files.end() ? said("404 Not Found", "")
                                  : said_range(head, found->second, "ETag: \"e\"\r\n");
    });
    HttpSource source(
        {.kind = SourceKind::kHttp, .text = server.url("/m"), .path = server.url("/m/")}, quick());
    Result<Listing> listing = source.list({});
    if (listing) {
      std::array<std::byte, 2> bytes{};
      EXPECT_TRUE(fill(source, listing->objects[0], 1, bytes, {}).has_value());
      EXPECT_EQ(bytes[0], std::byte{'"'});
    }
    return listing;
  }

  std::map<std::string, std::string> files{{"/m/config.json", "{\"a\": 1}"}};
};

TEST_F(HttpSourceTest, AsksByName) {
  files["/m/model.safetensors"] = "weights";
  files["/m/tokenizer.json"] = "{}";
  const auto listing = list();
  ASSERT_TRUE(listing.has_value()) << listing.error().message;
  ASSERT_EQ(listing->objects.size(), 3U);
  EXPECT_EQ(listing->objects[0].name, "config.json");
  EXPECT_EQ(listing->objects[0].bytes, 8U);
  EXPECT_EQ(listing->objects[0].validator, "\"e\"");
  EXPECT_EQ(listing->objects[2].name, "model.safetensors");
}

TEST_F(HttpSourceTest, FollowsAnIndex) {
  files["/m/model.safetensors.index.json"] = R"({"weight_map": {"a": "w-1.safetensors"}})";
  EXPECT_EQ(list().error().code, Code::kNotFound);
  files["/m/w-1.safetensors"] = "weights";
  const auto listing = list();
  ASSERT_TRUE(listing.has_value()) << listing.error().message;
  EXPECT_EQ(listing->objects.back().name, "w-1.safetensors");
  files["/m/model.safetensors.index.json"] = R"({"weight_map": {"a": "../w-1.safetensors"}})";
  EXPECT_EQ(list().error().code, Code::kCorrupt);
}

TEST_F(HttpSourceTest, SaysThatThereIsNoModel) {
  files.clear();
  EXPECT_THAT(list().error().message,
              HasSubstr("/m/config.json answered 404: there is no such file"));
}

}  // namespace
}  // namespace heddle::fetch
