#include "text/chat_template.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::text {
namespace {

using testing::HasSubstr;

Result<std::string> render(std::string_view source, const Chat& chat) {
  const auto compiled =
      ChatTemplate::compile(source, R"({"bos_token": "<s>", "pad_token": "<p>"})");
  return compiled ? (*compiled)->render(chat) : compiled.error();
}

std::string rendered(std::string_view source, const Chat& chat = {.messages = "[]"}) {
  const auto text = render(source, chat);
  return text ? *text : "error: " + text.error().message;
}

std::string error_of(std::string_view source, const Chat& chat = {.messages = "[]"}) {
  const auto text = render(source, chat);
  EXPECT_FALSE(text) << source << " gave " << (text ? text->substr(0, 200) : "");
  return text ? "" : text.error().message;
}

TEST(ChatTemplate, SeesTheNamesOfApplyChatTemplate) {
  const Chat chat{.messages = R"([{"role": "user", "content": "hi"}])",
                  .tools = R"([{"name": "f"}])",
                  .variables = R"({"flag": true, "bos_token": "<b>"})"};
  EXPECT_EQ(
      rendered(
          "{{ messages[0].content }} {{ tools[0].name }} {{ add_generation_prompt }} {{ flag }}"
          " {{ bos_token }} {{ pad_token }} {{ documents }}",
          chat),
      "hi f True True <b> <p> None");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const Chat chat{.messages = R"([{"z": 1, "role": "u", "a": {"y": 1, "b": 2}}])"};
  EXPECT_EQ(rendered("{{ messages[0] | tojson }}", chat),
            R"({"z": 1, "role": "u", "a": {"y": 1, "b": 2}})");
}

TEST(ChatTemplate, GivesReasoningTheNameThatTemplatesRead) {
  const Chat chat{.messages = R"([{"role": "assistant", "reasoning": "because"}])"};
  EXPECT_EQ(rendered("{{ messages[0].reasoning_content }}", chat), "because");
}

TEST(ChatTemplate, TellsTheGivenTime) {
  const Chat chat{.messages = "[]", .unix_time = 1'700'000'000};  // 2023-11-14 22:13:20 UTC
  EXPECT_THAT(rendered("{{ strftime_now('%Y-%m') }}", chat), "2023-11");
  EXPECT_GE(rendered("{{ strftime_now('%Y') }}"), "2024");
}

TEST(ChatTemplate, RefusesInItsOwnWords) {
  const std::string source = "a\nb\n{{ raise_exception('only ' ~ 2 ~ ' roles') }}";
  const auto text = render(source, {.messages = "[]"});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kInvalidArgument);
  EXPECT_EQ(text.error().message, "chat template, line 3: only 2 roles");
}

TEST(ChatTemplate, SyntaxErrorsNameTheLine) {
  const auto compiled = ChatTemplate::compile("{% if true %}\n{{ x }}\n{% endfor %}");
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().code, Code::kCorrupt);
  EXPECT_THAT(compiled.error().message, HasSubstr("line 3"));
}

TEST(ChatTemplate, RefusesBrokenInput) {
  EXPECT_THAT(error_of("", {.messages = "[{]"}), HasSubstr("messages"));
  EXPECT_THAT(error_of("", {.messages = "{}"}), HasSubstr("expected an array"));
  EXPECT_THAT(error_of("", {.messages = "[1]"}), HasSubstr("messages[0]"));
  EXPECT_THAT(error_of("", {.messages = ""}), HasSubstr("messages"));
  EXPECT_THAT(error_of("", {.messages = "[]", .tools = "["}), HasSubstr("tools"));
  EXPECT_THAT(error_of("", {.messages = "[]", .variables = "[]"}), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("", {.messages = "[]", .variables = R"({"messages": 1})"}),
              HasSubstr("messages"));
  EXPECT_THAT(error_of("", {.messages = "[{\"role\": \"\xff\"}]"}), HasSubstr("messages"));
  EXPECT_THAT(error_of("", {.messages = R"([{"content": "\ud800"}])"}), HasSubstr("messages"));
  const auto not_utf8 = ChatTemplate::compile("a\xff");
  ASSERT_FALSE(not_utf8);
  EXPECT_THAT(not_utf8.error().message, HasSubstr("offset 1"));
}

TEST(ChatTemplate, RefusesJsonNestedTooDeep) {
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_THAT(error_of("", {.messages = deep}), HasSubstr("recursion limit"));
}

/// Each would run for minutes, fill memory or overflow the stack.
class HostileTemplate : public testing::TestWithParam<const char*> {};

TEST_P(HostileTemplate, EndsInOneError) {
  EXPECT_THAT(error_of(GetParam()), HasSubstr("limit"));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    HostileTemplate,
    testing::Values(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}{{ ns.s "
        "}}{% endset %}"
        "{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('', "
        "ns.s) %}"
        "{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('', "
        "ns.s) %}"
        "{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s, ns.s] "
        "| join(ns.s) %}"
        "{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s.join([ns.s, "
        "ns.s]) %}"
        "{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = '%s%s' % (ns.s, "
        "ns.s) %}"
        "{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = "
        "'{0}{0}'.format(ns.s) %}"
        "{% endfor %}",
        "{% set s = 'x' * 90000000 %}{{ s | length }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ 'a\nb' | indent(999999999) }}",
        "{{ [1] | batch(999999999, 0) | list }}",
        "{{ [1] | slice(999999999) | list }}",
        "{{ strftime_now('%999999999d') }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
        "endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
        "endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
        "endfor %}"
        "{{ ns.l | tojson }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
        "endfor %}"
        "{{ ns.l | string | length }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% "
        "endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=1) %}{% for i in range(99999) %}{% set ns.l = {'a': ns.l} %}{% "
        "endfor %}",
        "{% set ns = namespace(l=1) %}{% for i in range(99999) %}{% set ns.l = dict(a=ns.l) %}{% "
        "endfor %}",
        "{% set ns = namespace(l=1) %}{% for i in range(99999) %}{% set ns.l = namespace(a=ns.l) "
        "%}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = ns.l | batch(1) | "
        "list %}"
        "{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(19000) %}{% set ns.l = [ns.l] %}{% "
        "endfor %}{{ ns.l }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) "
        "}}",
        "{% set s = 'x' * 30000000 %}{% for i in range(99999) %}{% if 'y' in s %}{% endif %}{% "
        "endfor %}",
        "{% set s = 'x' * 30000000 %}{% for i in range(99999) %}{% if s | length == i %}{% endif "
        "%}{% endfor %}",
        "{% set s = 'x' * 30000000 %}{% for i in range(99999) %}{% if s.endswith(s) %}{% endif "
        "%}{% endfor %}",
        "{% set s = 'x' * 30000000 %}{% for i in range(99999) %}{% set t = s | upper %}{% endfor "
        "%}",
        "{% set s = 'x' * 30000000 %}{% for i in range(99999) %}{{ s[i] }}{% endfor %}"));

TEST(ChatTemplate, NestingWithinLimitsIsHarmless) {
  EXPECT_EQ(rendered("{% set ns = namespace(l=[]) %}{% for i in range(6000) %}{% set ns.l = [ns.l] "
                     "%}{% endfor %}"
                     "{{ ns.l | length }}{{ ns.l == [ns.l] }}"),
            "1False");
}

TEST(ChatTemplate, LongChatsAreWithinLimits) {
  std::string messages = "[";
  for (int i = 0; i < 1000; ++i) {
    messages += std::string(i == 0 ? "" : ",") + R"({"role": "user", "content": ")" +
                std::string(1000, 'x') + "\"}";
  }
  messages += "]";
  const auto text = render(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
      "{{ '<|' ~ m.role ~ '|>' + m.content | trim + '\n' }}{% endfor %}",
      {.messages = messages});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->size(), 1000U * (1000 + 9));
}

TEST(ChatTemplate, RendersOnManyThreadsAtOnce) {
  const auto compiled =
      ChatTemplate::compile("{% for m in messages %}{{ m.content * 2 }}{% endfor %}");
  ASSERT_TRUE(compiled) << compiled.error().message;
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string word = "w" + std::to_string(t);
      const std::string messages = R"([{"content": ")" + word + R"("}])";
      for (int i = 0; i < 200; ++i) {
        const auto text = (*compiled)->render({.messages = messages});
        wrong += !text || *text != word + word ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ChatTemplate, ChainsOfOperatorsAreAsLongAsTheyLike) {
  const auto chain = [](const std::string& link, const std::string& last) {
    std::string text = "{{ ";
    for (int i = 0; i < 20'000; ++i) {
      text += link;
    }
    return text + last + " }}";
  };
  // All of these are parsed as deep as they are long; whether they can be used is not the point.
  for (const auto& [link, last] : {std::pair("1+", "1"),
                                   {"not ", "1"},
                                   {"-", "1"},
                                   {"1 if a else ", "1"},
                                   {"a.", "b"},
                                   {"a|", "string"}}) {
    const auto compiled = ChatTemplate::compile(chain(link, last));
    if (compiled) {
      (void)(*compiled)->render({.messages = "[]"});
    }
  }
  const auto long_one = ChatTemplate::compile(std::string(300'000, ' '));
  ASSERT_FALSE(long_one);
  EXPECT_THAT(long_one.error().message, testing::HasSubstr("the limit is 262144"));
}

}  // namespace
}  // namespace heddle::text
