#include "config/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::HasSubstr;

std::optional<std::string> environment(const std::string& name) {
  return name == "KEY" ? std::optional<std::string>("a: {b}") : std::nullopt;
}

Result<Node> parse(std::string_view text) {
  return parse_document(text, "test.yaml", environment);
}

TEST(Document, KeepsLinesKeysAndText) {
  const Result<Node> root = parse("a: 1\n\nb:\n  - no\n  - {c: 08}\n");
  ASSERT_TRUE(root);
  ASSERT_EQ(root->children.size(), 2U);
  const Node& b = root->children[1];
  EXPECT_EQ(b.key, "b");
  EXPECT_EQ(b.line, 3);
  EXPECT_EQ(b.children[0].text, "no");
  EXPECT_EQ(b.children[1].children[0].text, "08");
  EXPECT_EQ(b.children[1].children[0].line, 5);
}

TEST(Document, ReadsJson) {
  const Result<Node> root = parse("{\n\t\"a\": [\"x\\ny\", 2.5, null, true],\n\t\"b\": {}\n}");
  ASSERT_TRUE(root) << root.error().message;
  const Node& a = root->children[0];
  EXPECT_EQ(a.children[0].text, "x\ny");
  EXPECT_EQ(a.children[1].text, "2.5");
  EXPECT_EQ(a.children[2].kind, Node::Kind::kNull);
  EXPECT_EQ(root->children[1].kind, Node::Kind::kMap);
}

TEST(Document, AVariableIsPutInPlaceAndNeverParsed) {
  const Result<Node> root = parse("x: \"<${env.KEY}|${env.KEY}>\"\ny: ${env.KEY}\n");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->children[0].text, "<a: {b}|a: {b}>");
  EXPECT_EQ(root->children[1].text, "a: {b}");
  EXPECT_EQ(root->children[1].kind, Node::Kind::kScalar);
}

TEST(Document, MergeKeysAddWhatIsNotThere) {
  const Result<Node> root = parse(
      "x-base: &base {a: 1, b: 2}\ndefs:\n  more: &more {b: 3, c: 4}\n"
      "one: {<<: *base, b: 5}\ntwo:\n  <<: [*base, *more]\n");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(to_json(*root), R"({"one":{"b":5,"a":1},"two":{"a":1,"b":2,"c":4}})");
  const Result<Node> kept = parse("a: {x-own: 1, defs: 2}\n");
  EXPECT_EQ(to_json(*kept), R"({"a":{"x-own":1,"defs":2}})") << "within, they are keys";
}

TEST(Document, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"a: b: c\n", "test.yaml, line 1: "},
      {"\na: ${env.NONE}\n", "line 2: ${env.NONE}: the environment variable NONE is not set"},
      {"a: '${env.KEY'\n", "closing"},
      {"a: 1\nb: 2\na: 3\n", "line 3: the key \"a\" occurs twice"},
      {"[a]: 1\n", "a key must be a plain word"},
      {"a: 1\n---\nb: 1\n", "line 2: what follows is no part"},
      {",x#", "want one document"},
      {"a:\n  <<: 5\n", "line 2: \"<<\" wants a map"},
      {"b: &b 5\na:\n  <<: [*b]\n", "\"<<\" wants a map"},
      {"a: \"\\q\"\n", "line 1"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Node> root = parse(text);
    ASSERT_FALSE(root) << text;
    EXPECT_EQ(root.error().code, Code::kInvalidArgument);
    EXPECT_THAT(root.error().message, HasSubstr(message)) << text;
  }
}

TEST(Document, AliasesCannotExplode) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) {
      laughs += (k > 0 ? ", " : "") + before;
    }
    laughs += "]\n";
  }
  const Result<Node> root = parse(laughs);
  ASSERT_FALSE(root);
  EXPECT_THAT(root.error().message, HasSubstr("more than"));
  EXPECT_FALSE(parse("a: &a [*a]\n"));
  EXPECT_FALSE(parse(std::string(100'000, '[')));
}

}  // namespace
}  // namespace heddle::config
