#include "fetch/hub_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kHubCommit(40, 'c');
const SourceName kHubName{
    .kind = SourceKind::kHub, .text = "acme/small", .repo = "acme/small", .revision = "refs/pr/7"};

std::string file_entry(const std::string& name) {
  return R"({"type": "file", "path": ")" + name + R"(", "size": 2, "oid": ")" +
         std::string(40, 'a') + "\"}";
}

TEST(HubSource, ListsACommitPageByPage) {
  std::string self;
  const TestServer server([&](const std::string& head) {
    if (head.starts_with("GET /api/models/acme/small/revision/refs%2Fpr%2F7 ")) {
      return said("200 OK", "{\"sha\": \"" + kHubCommit + "\"}");
    }
    if (head.starts_with("GET /api/models/acme/small/tree/" + kHubCommit + "?recursive=1 ")) {
      return said("200 OK",
                  "[" + file_entry("config.json") + "]",
                  "Link: <" + self + "/next>; rel=\"next\"\r\n");
    }
    return head.starts_with("GET /next ") ? said("200 OK", "[" + file_entry("a b.json") + "]")
                                          : said("404 No", "");
  });
  self = server.url("");
  HubSource source(
      kHubName, environment_of({{"HF_ENDPOINT", self + "/"}, {"HF_TOKEN", "hf_x\n"}}), quick());
  const auto listing = source.list({});
  ASSERT_TRUE(listing.has_value()) << listing.error().message;
  EXPECT_EQ(listing->revision, kHubCommit);
  ASSERT_EQ(listing->objects.size(), 2U);
  EXPECT_EQ(listing->objects[1].url, self + "/acme/small/resolve/" + kHubCommit + "/a%20b.json");
  EXPECT_THAT(server.heard(), testing::Each(HasSubstr("Authorization: Bearer hf_x\r\n")));
}

TEST(HubSource, TheTokenGoesNowhereElse) {
  const TestServer server([&](const std::string& head) {
    return head.find("/tree/") == std::string::npos
               ? said("200 OK", "{\"sha\": \"" + kHubCommit + "\"}")
               : said("200 OK", "[]", "Link: <http://127.0.0.2/x>; rel=\"next\"\r\n");
  });
  HubSource source(kHubName, environment_of({{"HF_ENDPOINT", server.url("")}}), quick());
  EXPECT_THAT(source.list({}).error().message,
              HasSubstr("goes on elsewhere, at http://127.0.0.2/x"));
}

TEST(HubSource, ReadsTheTokenOfTheTools) {
  const store::TempDirectory directory;
  store::write_text(directory.path() / "token", "hf_file\n");
  const TestServer server(
      [](const std::string&) { return said("403 Forbidden", "", "X-Error-Code: GatedRepo\r\n"); });
  HubSource source(
      kHubName,
      environment_of({{"HF_ENDPOINT", server.url("")}, {"HF_HOME", directory.path().string()}}),
      quick());
  const auto listing = source.list({});
  ASSERT_FALSE(listing.has_value());
  EXPECT_THAT(listing.error().message,
              AllOf(HasSubstr("answered 403 (GatedRepo): it is gated or private, and the token"),
                    Not(HasSubstr("hf_file"))));
  EXPECT_THAT(server.heard()[0], HasSubstr("Bearer hf_file\r\n"));
}

}  // namespace
}  // namespace heddle::fetch
