#include "store/model_source.h"

#include <chrono>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Environment environment(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  };
}

std::string cache_for(std::map<std::string, std::string> variables) {
  return find_places("/etc/heddle", environment(std::move(variables))).hub_cache.string();
}

TEST(ModelPlaces, FollowTheVariablesOfTheHub) {
  EXPECT_EQ(cache_for({{"HOME", "/home/u"}}), "/home/u/.cache/huggingface/hub");
  EXPECT_EQ(cache_for({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/x"}}), "/x/huggingface/hub");
  EXPECT_EQ(cache_for({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/h"}}), "/h/hub");
  EXPECT_EQ(cache_for({{"HF_HOME", "/h"}, {"HF_HUB_CACHE", "/c"}}), "/c");
}

TEST(ModelPlaces, HaveACacheOfHeddlesOwn) {
  const auto own = [](std::map<std::string, std::string> variables) {
    return find_places("/etc/heddle", environment(std::move(variables))).url_cache.string();
  };
  EXPECT_EQ(own({{"HOME", "/home/u"}}), "/home/u/.cache/heddle/models");
  EXPECT_EQ(own({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/x"}}), "/x/heddle/models");
}

TEST(ModelPlaces, ReadsTheProcess) {
  const Environment process = process_environment();
  EXPECT_TRUE(process("PATH").has_value());
  EXPECT_FALSE(process("HEDDLE_TEST_UNSET_VARIABLE").has_value());
}

class FindModelTest : public testing::Test {
 protected:
  [[nodiscard]] ModelPlaces places() const {
    return {.base = path() / "base",
            .home = path() / "home",
            .hub_cache = path() / "hub",
            .url_cache = path() / "own"};
  }
  std::string error(std::string_view source, Code code = Code::kNotFound) {
    const auto found = find_model(source, places());
    EXPECT_FALSE(found.has_value()) << source;
    if (found) {
      return "";
    }
    EXPECT_EQ(found.error().code, code) << found.error().message;
    return found.error().message;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return directory_.path(); }
  [[nodiscard]] std::filesystem::path repository() const {
    return path() / "hub/models--acme--small-1.5";
  }

  TempDirectory directory_{};
};

TEST_F(FindModelTest, TakesDirectories) {
  write_text(path() / "base/models/adder/config.json", "{}");
  write_text(path() / "home/m/config.json", "{}");
  EXPECT_EQ(*find_model("models/adder", places()), path() / "base/models/adder");
  EXPECT_EQ(*find_model("./models/../models/adder", places()), path() / "base/models/adder");
  EXPECT_EQ(*find_model((path() / "home/m").string(), places()), path() / "home/m");
  EXPECT_EQ(*find_model("~/m", places()), path() / "home/m");
}

TEST_F(FindModelTest, TakesTheSnapshotThatMainNames) {
  write_text(repository() / "refs/main", "0a1b\n");
  write_text(repository() / "snapshots/0a1b/config.json", "{}");
  write_text(repository() / "snapshots/ffff/config.json", "{}");
  EXPECT_EQ(*find_model("acme/small-1.5", places()), repository() / "snapshots/0a1b");
  EXPECT_EQ(*find_model("acme/small-1.5@ffff", places()), repository() / "snapshots/ffff");
  write_text(repository() / "refs/refs/pr/7", "ffff");
  EXPECT_EQ(*find_model("acme/small-1.5@refs/pr/7", places()), repository() / "snapshots/ffff");
}

TEST_F(FindModelTest, TakesTheFileThatATagNames) {
  write_text(repository() / "refs/main", "0a1b");
  write_text(repository() / "snapshots/0a1b/small-Q8_0.gguf", "GGUF");
  write_text(repository() / "snapshots/0a1b/BF16/small-00001-of-00002.gguf", "GGUF");
  write_text(repository() / "snapshots/0a1b/BF16/small-00002-of-00002.gguf", "GGUF");
  const auto snapshot = repository() / "snapshots/0a1b";
  EXPECT_EQ(*find_model("acme/small-1.5:q8_0", places()), snapshot / "small-Q8_0.gguf");
  EXPECT_EQ(*find_model("hf://acme/small-1.5@0a1b:BF16", places()),
            snapshot / "BF16/small-00001-of-00002.gguf");
  EXPECT_THAT(error("acme/small-1.5:Q4_K_M"),
              AllOf(HasSubstr("no GGUF file there has the tag \"Q4_K_M\""),
                    HasSubstr("small-Q8_0.gguf"),
                    HasSubstr("`heddle pull acme/small-1.5:Q4_K_M` fetches it")));
  for (const char* name : {"acme/small:", "acme/small:a/b", "acme/small:..", "acme/small:a:b"}) {
    EXPECT_FALSE(parse_hub_name(name)) << name;
  }
}

TEST_F(FindModelTest, ADirectoryWinsOverAName) {
  write_text(repository() / "refs/main", "0a1b");
  write_text(repository() / "snapshots/0a1b/config.json", "{}");
  write_text(path() / "base/acme/small-1.5/config.json", "{}");
  EXPECT_EQ(*find_model("acme/small-1.5", places()), path() / "base/acme/small-1.5");
}

TEST_F(FindModelTest, SaysWhereItLooked) {
  EXPECT_THAT(
      error("acme/small-1.5"),
      AllOf(HasSubstr("there is no model acme/small-1.5: neither a directory "),
            HasSubstr("/base/acme/small-1.5 nor, in the Hugging Face cache, "),
            HasSubstr("/hub/models--acme--small-1.5; `heddle pull acme/small-1.5` fetches it")));
  EXPECT_THAT(error("/no/such/folder"), HasSubstr("there is no model directory /no/such/folder"));
  EXPECT_THAT(error("", Code::kInvalidArgument), HasSubstr("the path of a model is empty"));
}

TEST_F(FindModelTest, SaysWhatADownloadLacks) {
  write_text(repository() / "snapshots/ffff/config.json", "{}");
  EXPECT_THAT(error("acme/small-1.5"),
              AllOf(HasSubstr("is in the cache, but revision main is not: there is neither "),
                    HasSubstr("/refs/main nor "),
                    HasSubstr("the snapshots there are: ffff")));
  write_text(repository() / "refs/main", "0a1b");
  EXPECT_THAT(error("acme/small-1.5"), HasSubstr("names snapshot \"0a1b\", which "));
  write_text(repository() / "refs/main", "../../..");
  EXPECT_THAT(error("acme/small-1.5"), HasSubstr("names snapshot \"../../..\", which "));
}

TEST_F(FindModelTest, TakesUrlsThatWereFetched) {
  EXPECT_THAT(error("s3://bucket/llm/small"),
              AllOf(HasSubstr("s3://bucket/llm/small has not been fetched: there is no "),
                    HasSubstr("/own/s3_bucket_llm_small-"),
                    HasSubstr("; `heddle pull s3://bucket/llm/small` fetches it")));
  const auto folder = url_folder(places(), "s3://bucket/llm/small");
  write_text(folder / "config.json", "{}");
  EXPECT_EQ(*find_model("s3://bucket/llm/small", places()), folder);
  EXPECT_EQ(*find_model("s3://bucket/llm/small/", places()), folder);
  EXPECT_TRUE(is_there(folder.string() + ".used"));
  EXPECT_NE(url_folder(places(), "s3://bucket/llm-small"), folder);
  EXPECT_EQ(url_folder(places(), "https://h/../../../etc").parent_path(), path() / "own");
}

TEST_F(FindModelTest, AFolderByItsUrlIsUsedUnlessItWasFetched) {
  const std::string url = "file://" + (path() / "disk").string();
  EXPECT_THAT(error(url), HasSubstr("there is no model directory"));
  write_text(path() / "disk/config.json", "{}");
  EXPECT_EQ(*find_model(url, places()), path() / "disk");
  write_text(url_folder(places(), url) / "config.json", "{}");
  EXPECT_EQ(*find_model(url, places()), url_folder(places(), url));
}

TEST_F(FindModelTest, TakesNamesOfTheHubWithTheirScheme) {
  write_text(repository() / "refs/main", "0a1b");
  write_text(repository() / "snapshots/0a1b/config.json", "{}");
  EXPECT_EQ(*find_model("hf://acme/small-1.5", places()), repository() / "snapshots/0a1b");
}

TEST_F(FindModelTest, FindsFilesOfGguf) {
  write_text(path() / "base/m.gguf", "x");
  EXPECT_EQ(*find_model("m.gguf", places()), path() / "base/m.gguf");
  EXPECT_THAT(error("./absent.gguf"), testing::HasSubstr("there is no model file "));
  EXPECT_THAT(error("absent.gguf"), testing::EndsWith("base/absent.gguf"));
}

TEST_F(FindModelTest, AModelIsAsNewAsItsNewestFile) {
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  const auto fresh = old + std::chrono::hours(1);
  for (const char* name : {"d/config.json",
                           "d/m.safetensors",
                           "d/notes.txt",
                           "m-00001-of-00002.gguf",
                           "m-00002-of-00002.gguf"}) {
    write_text(path() / name, "x");
    std::filesystem::last_write_time(path() / name, old);
  }
  EXPECT_EQ(newest_write(path() / "d"), old);
  std::filesystem::last_write_time(path() / "d/notes.txt", fresh);
  EXPECT_EQ(newest_write(path() / "d"), old);
  std::filesystem::last_write_time(path() / "d/m.safetensors", fresh);
  EXPECT_EQ(newest_write(path() / "d"), fresh);
  EXPECT_EQ(newest_write(path() / "m-00001-of-00002.gguf"), old);
  std::filesystem::last_write_time(path() / "m-00002-of-00002.gguf", fresh);
  EXPECT_EQ(newest_write(path() / "m-00001-of-00002.gguf"), fresh);
  EXPECT_EQ(newest_write(path() / "absent"), std::filesystem::file_time_type::min());
}

TEST_F(FindModelTest, NamesDoNotLeadOutOfTheCache) {
  write_text(path() / "hub/models--acme--x/refs/main", "0a1b");
  write_text(path() / "secret/config.json", "{}");
  for (const char* source : {"acme/x@../../../secret",
                             "acme/x@..",
                             "acme/../x/y",
                             "a/b/c",
                             "acme/",
                             "/",
                             "@main",
                             "acme/x@",
                             "acme/x y"}) {
    if (const auto found = find_model(source, places())) {
      EXPECT_EQ(*found, "/") << source;  // A directory that was named as one.
    }
  }
}

}  // namespace
}  // namespace heddle::store
