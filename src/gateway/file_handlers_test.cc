#include <gmock/gmock.h>

#include "gateway/test_batches.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

class FilesTest : public BatchesTest {};

TEST_F(FilesTest, AFileIsKeptShownAndDeleted) {
  start();
  const TestResponse kept = upload("{\"a\":1}\r\n{}\n");
  ASSERT_EQ(kept.status, 200) << kept.body;
  const json told = json::parse(kept.body);
  const std::string id = told["id"];
  EXPECT_EQ(told["object"], "file");
  EXPECT_EQ(told["filename"], "in.jsonl");
  EXPECT_EQ(told["bytes"], 12);
  EXPECT_EQ(ask("GET", "/v1/files/" + id), told);
  const TestResponse content = call("GET", "/v1/files/" + id + "/content");
  EXPECT_EQ(content.body, "{\"a\":1}\r\n{}\n");
  EXPECT_EQ(content.headers.at("content-type"), "application/octet-stream");
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id)["deleted"], true);
  EXPECT_EQ(call("GET", "/v1/files/" + id).status, 404);
  EXPECT_EQ(call("GET", "/v1/files/" + id + "/content").status, 404);
  EXPECT_EQ(call("DELETE", "/v1/files/" + id).status, 404);
}

TEST_F(FilesTest, AFileOfManyPiecesAndAnEmptyOneComeAsTheyWere) {
  start();
  std::string big;
  for (int i = 0; i < 200'000; ++i) {
    big += std::to_string(i) + "\n";
  }
  EXPECT_EQ(call("GET", "/v1/files/" + file(big) + "/content").body, big);
  EXPECT_EQ(call("GET", "/v1/files/" + file("") + "/content").body, "");
}

TEST_F(FilesTest, NamesAreNoPaths) {
  start();
  const TestResponse kept = call("POST",
                                 "/v1/files",
                                 form("{}", "batch", "../../../../etc/passwd"),
                                 "Content-Type: multipart/form-data; boundary=x\r\n");
  const json told = json::parse(kept.body);
  EXPECT_EQ(told["filename"], "../../../../etc/passwd");
  EXPECT_EQ(call("GET", "/v1/files/" + told["id"].get<std::string>() + "/content").body, "{}");
  for (const char* id : {"../book.db", "..%2Fbook.db", "%2e%2e/book.db", "x/../../book.db"}) {
    EXPECT_EQ(call("GET", std::string("/v1/files/") + id).status, 404) << id;
    EXPECT_EQ(call("GET", std::string("/v1/files/") + id + "/content").status, 404) << id;
    EXPECT_EQ(call("DELETE", std::string("/v1/files/") + id).status, 404) << id;
  }
}

TEST_F(FilesTest, ListsCanBeTurnedPageByPage) {
  start();
  const std::string a = file("1");
  const std::string b = file("2");
  const std::string c = file("3");
  const auto ids = [this](const std::string& query) {
    std::vector<std::string> found;
    const json listed = ask("GET", "/v1/files" + query);
    for (const json& one : listed["data"]) {
      found.push_back(one["id"]);
    }
    return found;
  };
  EXPECT_EQ(ids(""), (std::vector{c, b, a}));
  EXPECT_EQ(ids("?order=asc&limit=2"), (std::vector{a, b}));
  EXPECT_EQ(ids("?order=asc&after=" + b), std::vector{c});
  EXPECT_TRUE(ids("?purpose=batch_output").empty());
  EXPECT_TRUE(ids("?after=nobody").empty());
  EXPECT_EQ(ask("GET", "/v1/files?limit=2")["has_more"], true);
  EXPECT_EQ(ask("GET", "/v1/files?limit=3")["has_more"], false);
  EXPECT_EQ(call("GET", "/v1/files?limit=0").status, 400);
}

TEST_F(FilesTest, WhatIsWrongIsSaid) {
  start();
  const std::string type = "Content-Type: multipart/form-data; boundary=x\r\n";
  const auto refused = [this](const std::string& body, const std::string& headers) {
    const TestResponse answer = call("POST", "/v1/files", body, headers);
    return std::to_string(answer.status) + " " + answer.body;
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused("{}", ""), HasSubstr("multipart/form-data"));
  EXPECT_THAT(refused(form("{}", "fine-tune"), type), HasSubstr("purpose: is"));
  EXPECT_THAT(
      refused("--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x--",
              type),
      HasSubstr("file: is missing"));
  const std::string stays =
      "--x\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n5\r\n";
  EXPECT_THAT(refused(stays + form("{}"), type), HasSubstr("expires_after"));
}

TEST_F(FilesTest, KeysHaveTheirOwn) {
  config.api_keys = {
      {.key = "alice"}, {.key = "bob"}, {.key = "root", .role = config::Role::kAdmin}};
  start();
  const json told = json::parse(upload("{}", "Authorization: Bearer alice\r\n").body);
  const std::string path = "/v1/files/" + told["id"].get<std::string>();
  for (const char* other : {"bob", "root"}) {
    const std::string key = std::string("Authorization: Bearer ") + other + "\r\n";
    EXPECT_EQ(call("GET", path, "", key).status, 404);
    EXPECT_EQ(call("GET", path + "/content", "", key).status, 404);
    EXPECT_EQ(call("DELETE", path, "", key).status, 404);
    EXPECT_TRUE(json::parse(call("GET", "/v1/files", "", key).body)["data"].empty());
  }
  EXPECT_EQ(call("GET", path, "", "Authorization: Bearer alice\r\n").status, 200);
}

TEST_F(FilesTest, ABudgetIsKept) {
  config.batches.disk = 100;
  start();
  EXPECT_EQ(upload(std::string(60, 'x')).status, 200);
  const TestResponse full = upload(std::string(60, 'x'));
  EXPECT_EQ(full.status, 413);
  EXPECT_EQ(json::parse(full.body)["error"]["code"], "storage_full");
}

TEST_F(FilesTest, AServerWithoutAFolderSaysSo) {
  options.batches = nullptr;
  start();
  EXPECT_EQ(upload("{}").status, 501);
  for (const char* path : {"/v1/files", "/v1/files/x", "/v1/batches", "/v1/batches/x"}) {
    EXPECT_EQ(call("GET", path).status, 501) << path;
  }
  EXPECT_EQ(call("DELETE", "/v1/files/x").status, 501);
  EXPECT_EQ(call("POST", "/v1/batches", batch_body("x")).status, 501);
  EXPECT_EQ(call("POST", "/v1/batches/x/cancel").status, 501);
}

}  // namespace
}  // namespace heddle::gateway
