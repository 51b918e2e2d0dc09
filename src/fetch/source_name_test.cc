#include "fetch/source_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/test_source.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

TEST(SourceName, KnowsEachForm) {
  const auto hub = parse_source_name("acme/small@refs/pr/7");
  ASSERT_TRUE(hub.has_value());
  EXPECT_EQ(hub->kind, SourceKind::kHub);
  EXPECT_EQ(hub->repo, "acme/small");
  EXPECT_EQ(hub->revision, "refs/pr/7");
  EXPECT_EQ(hub->tag, "");
  const auto file = parse_source_name("acme/small@v1:Q4_K_M");
  EXPECT_EQ(file->repo, "acme/small");
  EXPECT_EQ(file->revision, "v1");
  EXPECT_EQ(file->tag, "Q4_K_M");
  EXPECT_EQ(parse_source_name("hf://acme/small")->repo, "acme/small");
  EXPECT_EQ(parse_source_name("acme/small")->revision, "main");

  const auto bucket = parse_source_name("s3://models/llm/small//");
  ASSERT_TRUE(bucket.has_value());
  EXPECT_EQ(bucket->kind, SourceKind::kS3);
  EXPECT_EQ(bucket->bucket, "models");
  EXPECT_EQ(bucket->path, "llm/small/");
  EXPECT_EQ(parse_source_name("s3://models")->path, "");

  EXPECT_EQ(parse_source_name("https://h/a")->path, "https://h/a/");
  EXPECT_EQ(parse_source_name("http://h:81/a/")->path, "http://h:81/a/");
  EXPECT_EQ(parse_source_name("file:///srv/m")->path, "/srv/m");
}

TEST(SourceName, SaysWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const auto name = parse_source_name(text);
    return name ? std::string("none") : name.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("names no model"));
  EXPECT_THAT(message("a b"), HasSubstr("spaces"));
  EXPECT_THAT(message("file://host/x"), HasSubstr("a path begins with"));
  EXPECT_THAT(message("s3://x/y"), HasSubstr("\"x\" is no bucket"));
  EXPECT_THAT(message("https://u:secret@h/"), HasSubstr("~/.netrc"));
  EXPECT_THAT(message("https://u:secret@h/"), testing::Not(HasSubstr("secret")));
  EXPECT_THAT(message("https://h/?a=b"), HasSubstr("has no query"));
  EXPECT_THAT(message("a/b/c"),
              HasSubstr("want org/name, org/name@revision, org/name:Q4_K_M, s3://bucket/prefix"));
}

TEST(SourceName, WhatAServerFetches) {
  const store::Environment online = environment_of({});
  for (const char* path : {"acme/adder", "hf://acme/adder@v1", "s3://models/a", "https://h/a"}) {
    EXPECT_TRUE(remote_source(path, online).has_value()) << path;
  }
  // Folders, and what may be the name of one.
  for (const char* path : {"/models/a", "./a", "../a", "~/a", "adder", "file:///a", "a/b/c", ""}) {
    EXPECT_FALSE(remote_source(path, online).has_value()) << path;
  }
  const store::Environment offline = environment_of({{"HF_HUB_OFFLINE", "1"}});
  EXPECT_FALSE(remote_source("acme/adder", offline).has_value());
  EXPECT_TRUE(remote_source("s3://models/a", offline).has_value());
  EXPECT_EQ(name(remote_source("s3://models/a", offline)->kind), "s3");
}

}  // namespace
}  // namespace heddle::fetch
