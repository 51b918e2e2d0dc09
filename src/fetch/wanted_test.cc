#include "fetch/wanted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Object> objects(std::initializer_list<const char*> names) {
  std::vector<Object> all;
  for (const char* name : names) {
    all.push_back({.name = name, .bytes = 1});
  }
  return all;
}

std::vector<std::string> names_of(const std::vector<Object>& all) {
  std::vector<std::string> names;
  for (const Object& object : all) {
    names.push_back(object.name);
  }
  return names;
}

Result<Choice> chosen(std::initializer_list<const char*> names, const std::string& index = "") {
  return choose(objects(names), "m", [&](const Object&) { return Result<std::string>(index); });
}

TEST(Choose, TakesWhatHeddleReads) {
  const auto choice = chosen({"model.safetensors",
                              "model-q4.gguf",
                              "pytorch_model.bin",
                              "config.json",
                              "tokenizer.json",
                              "README.md",
                              "onnx/model.onnx",
                              "additional_chat_templates/rag.jinja",
                              "1_Pooling/config.json",
                              "consolidated.safetensors",
                              "other/config.json"});
  ASSERT_TRUE(choice.has_value());
  EXPECT_THAT(names_of(choice->wanted),
              ElementsAre("1_Pooling/config.json",
                          "additional_chat_templates/rag.jinja",
                          "config.json",
                          "tokenizer.json",
                          "model.safetensors"));
  EXPECT_THAT(names_of(choice->left_out),
              ElementsAre("README.md",
                          "consolidated.safetensors",
                          "model-q4.gguf",
                          "onnx/model.onnx",
                          "other/config.json",
                          "pytorch_model.bin"));
}

TEST(Choose, TakesTheShardsOfTheIndex) {
  const char* index = R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})";
  const auto choice = chosen({"config.json",
                              "model.safetensors.index.json",
                              "model-1.safetensors",
                              "model-2.safetensors",
                              "consolidated.safetensors"},
                             index);
  ASSERT_TRUE(choice.has_value());
  EXPECT_THAT(names_of(choice->wanted),
              ElementsAre("config.json",
                          "model-1.safetensors",
                          "model-2.safetensors",
                          "model.safetensors.index.json"));
}

TEST(Choose, SaysWhatIsMissing) {
  EXPECT_THAT(chosen({"config.json", "model.gguf"}).error().message,
              HasSubstr("m has no model.safetensors and no model.safetensors.index.json; heddle "
                        "reads config.json with safetensors, or a GGUF file that is named by its "
                        "tag, as org/name:Q4_K_M. There is: config.json, model.gguf"));
  EXPECT_THAT(chosen({}).error().message, HasSubstr("m has no config.json"));
  EXPECT_THAT(chosen({"config.json", "model.safetensors.index.json"},
                     R"({"weight_map": {"a": "x.safetensors"}})")
                  .error()
                  .message,
              HasSubstr("names x.safetensors, which is not there"));
  const auto out = chosen({"config.json", "model.safetensors.index.json"},
                          R"({"weight_map": {"a": "../x.safetensors"}})");
  ASSERT_FALSE(out.has_value());
  EXPECT_EQ(out.error().code, Code::kCorrupt);
}

TEST(ChooseGguf, TakesTheFilesOfOneTag) {
  const auto choice = choose_gguf(
      objects({"README.md", "config.json", "m-Q8_0.gguf", "m-Q4_K_M.gguf"}), "m", "Q4_K_M");
  ASSERT_TRUE(choice.has_value());
  EXPECT_THAT(names_of(choice->wanted), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(names_of(choice->left_out), ElementsAre("README.md", "config.json", "m-Q8_0.gguf"));
  EXPECT_THAT(choose_gguf(objects({"m-Q8_0.gguf"}), "m", "Q5_K").error().message,
              HasSubstr("m: no GGUF file there has the tag \"Q5_K\"; there is: m-Q8_0.gguf"));
}

}  // namespace
}  // namespace heddle::fetch
