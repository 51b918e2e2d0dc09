#include "text/answer_format.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "base/test_places.h"

namespace heddle::text {
namespace {

std::string template_file(const std::string& name) {
  const std::string path = places::source("tests/text/templates/" + name);
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AnswerFormat, TemplatesTellHowTheirModelsCall) {
  EXPECT_EQ(tool_format_of(template_file("qwen3.jinja")), ToolFormat::kHermes);
  EXPECT_EQ(tool_format_of(template_file("llama3_tools.jinja")), ToolFormat::kLlama3);
  EXPECT_EQ(tool_format_of(template_file("mistral_v3.jinja")), ToolFormat::kMistral);
  EXPECT_EQ(tool_format_of(template_file("gptoss.jinja")), ToolFormat::kHarmony);
  EXPECT_EQ(tool_format_of(template_file("llama2.jinja")), ToolFormat::kNone);
}

TEST(AnswerFormat, Gemma4sMarkersAreItsOwn) {
  const std::string calls = "{{ '<|tool_call>call:' + name + '{' }}{{ '}<tool_call|>' }}";
  const std::string thoughts = "{{ '<|channel>thought\\n<channel|>' }}";
  EXPECT_EQ(tool_format_of(thoughts + calls), ToolFormat::kGemma4);
  EXPECT_EQ(reasoning_format_of(thoughts + calls), ReasoningFormat::kGemma4);
  EXPECT_EQ(tool_format_of(thoughts), ToolFormat::kNone);
  EXPECT_EQ(reasoning_format_of(calls), ReasoningFormat::kNone);
}

TEST(AnswerFormat, SomeTemplatesTellOfNoTools) {
  EXPECT_TRUE(describes_tools(template_file("qwen3.jinja")));
  EXPECT_FALSE(describes_tools(template_file("llama2.jinja")));
}

TEST(AnswerFormat, TemplatesTellWhetherTheirModelsThink) {
  EXPECT_EQ(reasoning_format_of(template_file("qwen3.jinja")), ReasoningFormat::kThink);
  EXPECT_EQ(reasoning_format_of(template_file("gptoss.jinja")), ReasoningFormat::kHarmony);
  EXPECT_EQ(reasoning_format_of(template_file("llama2.jinja")), ReasoningFormat::kNone);
}

}  // namespace
}  // namespace heddle::text
