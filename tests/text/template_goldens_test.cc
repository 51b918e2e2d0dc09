#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "goldens.h"
#include "text/chat_template.h"

namespace heddle::text {
namespace {

constexpr const char* kDefaults = R"({"bos_token": "<s>", "eos_token": "</s>"})";

Result<std::string> render(const std::string& source, const Json& chat, std::int64_t now) {
  const auto compiled = ChatTemplate::compile(source, kDefaults);
  if (!compiled) {
    return compiled.error();
  }
  const std::string messages = chat.at("messages").dump();
  const std::string tools = chat.contains("tools") ? chat.at("tools").dump() : "";
  const std::string variables = chat.contains("variables") ? chat.at("variables").dump() : "";
  return (*compiled)->render({.messages = messages,
                              .tools = tools,
                              .variables = variables,
                              .add_generation_prompt = chat.value("add_generation_prompt", false),
                              .unix_time = now});
}

/// Equal text, or refused by both; for what a template itself refuses, with its words.
void expect_like_python(const Result<std::string>& got, const Json& want, const std::string& what) {
  if (want.is_string()) {
    EXPECT_TRUE(got.has_value()) << what << "\n" << (got ? "" : got.error().message);
    if (got) {
      EXPECT_EQ(*got, want.get<std::string>()) << what;
    }
    return;
  }
  EXPECT_FALSE(got.has_value()) << what << "\npython: " << want.at("error")
                                << "\nwe: " << (got ? *got : "");
}

class FamilyTemplate : public testing::TestWithParam<const char*> {};

TEST_P(FamilyTemplate, RendersLikeTransformers) {
  const std::string name = GetParam();
  const std::string source =
      read_text(std::filesystem::path(HEDDLE_TEMPLATES_DIR) / (name + ".jinja"));
  const Json chats = read_golden("templates/chats.json");
  const Json wants = read_golden("templates/" + name + ".json");
  ASSERT_EQ(wants.size(), chats.at("chats").size());
  std::size_t rendered = 0;
  for (const auto& [chat_name, chat] : chats.at("chats").items()) {
    const Json& want = wants.at(chat_name);
    const auto got = render(source, chat, chats.at("now").get<std::int64_t>());
    expect_like_python(got, want, name + " of " + chat_name);
    rendered += want.is_string() ? 1 : 0;
  }
  EXPECT_GT(rendered, 5U);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         FamilyTemplate,
                         testing::Values("llama2",
                                         "llama3",
                                         "llama3_tools",
                                         "qwen2",
                                         "qwen25",
                                         "qwen3",
                                         "gemma2",
                                         "gemma3",
                                         "gptoss",
                                         "mistral_v1",
                                         "mistral_v3",
                                         "mistral_v7",
                                         "masked"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(JinjaSnippets, MeanWhatPythonMeans) {
  const Json golden = read_golden("templates/snippets.json");
  const std::int64_t now = read_golden("templates/chats.json").at("now").get<std::int64_t>();
  const Json chat = {{"messages", Json::array()}, {"variables", golden.at("variables")}};
  for (const Json& snippet : golden.at("snippets")) {
    const std::string source = snippet.at(0).get<std::string>();
    expect_like_python(render(source, chat, now), snippet.at(1), source);
  }
}

}  // namespace
}  // namespace heddle::text
