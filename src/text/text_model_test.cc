#include "text/text_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_tokenizers.h"

namespace heddle::text {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A model directory that is gone when the test ends.
class TextModelFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "text_model_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  void write_tokenizer() { write("tokenizer.json", golden_tokenizer_json("llama3")); }

  std::shared_ptr<const TextModel> open() {
    auto model = TextModel::open(directory_);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    return model ? *model : nullptr;
  }
  Error open_error() {
    const auto model = TextModel::open(directory_);
    EXPECT_FALSE(model);
    return model ? Error{} : model.error();
  }

  std::filesystem::path directory_;
};

const Chat kChat{.messages = R"([{"role": "user", "content": "hi"}])"};

TEST_F(TextModelFiles, ABaseModelNeedsOnlyItsTokenizer) {
  write_tokenizer();
  const auto model = open();
  EXPECT_EQ(model->chat_template(), nullptr);
  EXPECT_FALSE(model->bos());
  EXPECT_TRUE(model->eos().empty());
  EXPECT_TRUE(model->tokenizer()->encode("x", SpecialTokens::kNone));
  const auto text = model->render(kChat);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kFailedPrecondition);
}

TEST_F(TextModelFiles, TakesTheTemplateOfTheConfig) {
  write_tokenizer();
  write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}", "bos_token": "<|begin|>",
            "eos_token": {"content": "<|end|>"}})");
  const auto model = open();
  EXPECT_EQ(*model->render(kChat), "<|begin|>hi");
  EXPECT_EQ(model->bos(), model->tokenizer()->token_to_id("<|begin|>"));
  EXPECT_THAT(model->eos(), testing::ElementsAre(*model->tokenizer()->token_to_id("<|end|>")));
}

TEST_F(TextModelFiles, ATemplateFileComesBeforeTheConfig) {
  write_tokenizer();
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(*open()->render(kChat), "json");
  write("chat_template.jinja", "jinja");
  write("additional_chat_templates/rag.jinja", "rag");
  const auto model = open();
  EXPECT_EQ(*model->render(kChat), "jinja");
  ASSERT_NE(model->chat_template("rag"), nullptr);
  EXPECT_EQ(*model->chat_template("rag")->render(kChat), "rag");
}

TEST_F(TextModelFiles, ChoosesAmongNamedTemplates) {
  write_tokenizer();
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
                              {"name": "tool_use", "template": "tools"}]})");
  const auto model = open();
  EXPECT_EQ(*model->render(kChat), "plain");
  Chat with_tools = kChat;
  with_tools.tools = R"([{"name": "f"}])";
  EXPECT_EQ(*model->render(with_tools), "tools");
  EXPECT_EQ(model->chat_template("rag"), nullptr);
}

TEST_F(TextModelFiles, ReadsWhatEndsAnAnswer) {
  write_tokenizer();
  write("special_tokens_map.json", R"({"eos_token": "<|end|>"})");
  const TokenId end = golden_tokenizer("llama3")->token_to_id("<|end|>").value();
  EXPECT_THAT(open()->eos(), testing::ElementsAre(end));
  write("config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(open()->eos(), testing::ElementsAre(7, end));
  write("generation_config.json", R"({"eos_token_id": [9, 3, 9]})");
  EXPECT_THAT(open()->eos(), testing::ElementsAre(3, 9, end));
}

TEST_F(TextModelFiles, AnswersInHarmonyEndWithACall) {
  std::string tokenizer = golden_tokenizer_json("llama3");
  for (std::size_t at = tokenizer.find("<|im_start|>"); at != std::string::npos;
       at = tokenizer.find("<|im_start|>")) {
    tokenizer.replace(at, 12, "<|call|>");
  }
  write("tokenizer.json", tokenizer);
  write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  const auto plain = open();
  const TokenId call = plain->tokenizer()->token_to_id("<|call|>").value();
  EXPECT_THAT(plain->eos(), Not(testing::Contains(call)));
  write("chat_template.jinja", "<|start|>user<|channel|><|message|>");
  const auto model = open();
  EXPECT_EQ(model->tool_format(), ToolFormat::kHarmony);
  EXPECT_THAT(model->eos(), testing::Contains(call));
  EXPECT_TRUE(std::ranges::is_sorted(model->eos()));
}

TEST_F(TextModelFiles, ErrorsNameTheFile) {
  EXPECT_EQ(open_error().code, Code::kNotFound);
  EXPECT_THAT(open_error().message, HasSubstr("tokenizer.json"));
  write("tokenizer.json", "{");
  EXPECT_EQ(open_error().code, Code::kCorrupt);
  EXPECT_THAT(open_error().message, HasSubstr("tokenizer.json"));
  write_tokenizer();
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"tokenizer_config.json", "[1]"},
           {"tokenizer_config.json", R"({"chat_template": "{% if %}"})"},
           {"tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})"},
           {"tokenizer_config.json", R"({"chat_template": 5})"},
           {"special_tokens_map.json", "nope"},
           {"chat_template.json", "nope"},
           {"chat_template.jinja", "{{ 1 +"},
           {"generation_config.json", R"({"eos_token_id": -1})"},
           {"generation_config.json", R"({"eos_token_id": ["a"]})"},
           {"config.json", R"({"eos_token_id": 999999999})"},
       }) {
    write(name, text);
    EXPECT_EQ(open_error().code, Code::kCorrupt) << name << " " << text;
    EXPECT_THAT(open_error().message, Not(HasSubstr(directory_.string()))) << name;
    std::filesystem::remove(directory_ / name);
  }
  EXPECT_NE(open(), nullptr);
}

}  // namespace
}  // namespace heddle::text
