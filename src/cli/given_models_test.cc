#include "cli/given_models.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/test_directory.h"

namespace heddle::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class GivenModelsTest : public testing::Test {
 protected:
  std::string file(const std::string& name) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path.string();
  }

  static Json document(const std::vector<std::string>& given,
                       const std::string& memory = "",
                       bool gpus = false) {
    const Result<std::string> text = document_of(given, memory, gpus);
    EXPECT_TRUE(text) << text.error().message;
    return text ? Json::parse(*text) : Json();
  }

  static std::string refusal(const std::vector<std::string>& given,
                             const std::string& memory = "") {
    const Result<std::string> text = document_of(given, memory, false);
    EXPECT_FALSE(text);
    return text ? "" : text.error().message;
  }

  TempDirectory folder_{};
};

TEST_F(GivenModelsTest, AFileOrFolderIsCalledByItsOwnName) {
  const std::string plain = file("small.Q4_1.gguf");
  const std::string part = file("large-00001-of-00002.gguf");
  file("chat/config.json");
  const std::string chat = (folder_.path() / "chat").string();
  EXPECT_EQ(document({plain, part, chat + "/", "own=" + chat})["models"],
            (Json{{"small.Q4_1", {{"path", plain}}},
                  {"large", {{"path", part}}},
                  {"chat", {{"path", chat}}},
                  {"own", {{"path", chat}}}}));
}

TEST_F(GivenModelsTest, AModelOfElsewhereIsCalledAsItWasGiven) {
  EXPECT_EQ(
      document({"acme/sum",
                "hf://acme/other@main",
                "acme/sum-GGUF:Q4_K_M",
                "s=s3://a/b=c",
                "https://models.example/x=y/"})["models"],
      (Json{{"acme/sum", {{"path", "acme/sum"}, {"aliases", {"sum"}}}},
            {"acme/other@main", {{"path", "hf://acme/other@main"}, {"aliases", {"other@main"}}}},
            {"acme/sum-GGUF:Q4_K_M",
             {{"path", "acme/sum-GGUF:Q4_K_M"}, {"aliases", {"sum-GGUF:Q4_K_M"}}}},
            {"s", {{"path", "s3://a/b=c"}}},
            {"https://models.example/x=y/",
             {{"path", "https://models.example/x=y/"}, {"aliases", {"x=y"}}}}}));
  EXPECT_FALSE(document({"acme/sum", "other/sum"})["models"]["other/sum"].contains("aliases"));
}

TEST_F(GivenModelsTest, WhatCanBeNoModelIsRefused) {
  EXPECT_THAT(refusal({"chat"}), HasSubstr("org/name"));
  EXPECT_THAT(refusal({"./acme/sum"}), HasSubstr("\"./acme/sum\": there is no such file"));
  EXPECT_THAT(refusal({"models/chat.gguf"}), HasSubstr("there is no such file"));
  const std::string twice = file("a/chat.gguf");
  EXPECT_THAT(refusal({twice, file("b/chat.gguf")}), HasSubstr("want NAME="));
  EXPECT_THAT(refusal({twice}, "much"), HasSubstr("--memory: "));
}

TEST_F(GivenModelsTest, MemoryIsDividedBetweenWhatServesAndWhatWaits) {
  const Json cpus = document({"acme/sum"}, "3GiB");
  EXPECT_EQ(cpus["devices"][0]["memory"], 2LL << 30);
  EXPECT_EQ(cpus["host"]["memory"], 1LL << 30);
  const Json gpus = document({"acme/sum"}, "3GiB", true);
  EXPECT_FALSE(gpus.contains("devices"));
  EXPECT_EQ(gpus["host"]["memory"], 3LL << 30);
  EXPECT_FALSE(document({"acme/sum"}).contains("host"));
}

TEST_F(GivenModelsTest, TheDocumentIsAConfiguration) {
  const Result<config::Config> config = given_models({"acme/sum", "b=acme/other"}, "3GiB");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->models.size(), 2U);
  EXPECT_EQ(config->models[0].id, "acme/sum");
}

TEST_F(GivenModelsTest, OneFileThatIsNoModelIsAConfiguration) {
  EXPECT_TRUE(is_configuration({file("heddle.yaml")}));
  EXPECT_TRUE(is_configuration({file("server.conf")}));
  EXPECT_TRUE(is_configuration({"absent.yaml"}));
  EXPECT_FALSE(is_configuration({file("small.gguf")}));
  EXPECT_FALSE(is_configuration({folder_.path().string()}));
  EXPECT_FALSE(is_configuration({"acme/sum"}));
  EXPECT_FALSE(is_configuration({}));
  EXPECT_FALSE(is_configuration({"absent.yaml", "acme/sum"}));
}

}  // namespace
}  // namespace heddle::cli
