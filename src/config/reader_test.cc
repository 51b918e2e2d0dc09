#include "config/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A document, read by what a test declares.
class ReaderTest : public testing::Test {
 protected:
  std::vector<std::string> read(std::string_view text, const Fields::Declare& declare) {
    const Result<Node> root = parse_document(text, "f", process_environment);
    EXPECT_TRUE(root) << (root ? "" : root.error().message);
    Reader reader(*root, "", diagnosis_);
    declare(reader);
    reader.finish();
    return diagnosis_.problems;
  }

  Diagnosis diagnosis_{.origin = "f", .directory = "/etc/heddle"};
};

TEST_F(ReaderTest, ReadsEveryType) {
  bool flag = false;
  std::int64_t integer = 0;
  std::string text;
  std::size_t choice = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rate = 0;
  Duration duration{};
  Duration bare{};
  std::string path;
  std::vector<std::string> texts;
  const auto problems = read(
      "flag: true\ninteger: 7\ntext: 08\nchoice: b\nbytes: 64MiB\nrate: 50MB/s\nduration: 20ms\n"
      "bare: 300\npath: log/x\ntexts: [p, q]\n",
      [&](Fields& f) {
        f.flag({"flag", ""}, flag);
        f.integer({"integer", ""}, {.least = 0, .most = 7}, integer);
        f.text({"text", ""}, text);
        f.choice({"choice", ""}, {"a", "b"}, choice);
        f.bytes({"bytes", ""}, bytes);
        f.rate({"rate", ""}, rate);
        f.duration({"duration", ""}, duration);
        f.seconds({"bare", ""}, bare);
        f.path({"path", ""}, path);
        f.texts({"texts", ""}, texts);
      });
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_TRUE(flag);
  EXPECT_EQ(integer, 7);
  EXPECT_EQ(text, "08");
  EXPECT_EQ(choice, 1U);
  EXPECT_EQ(bytes, 64U << 20U);
  EXPECT_EQ(rate, 50'000'000U);
  EXPECT_EQ(duration, 20ms);
  EXPECT_EQ(bare, 300s);
  EXPECT_EQ(path, "/etc/heddle/log/x");
  EXPECT_THAT(texts, ElementsAre("p", "q"));
}

TEST_F(ReaderTest, KeepsDefaultsWhereAKeyIsAbsentOrEmpty) {
  bool flag = true;
  std::string text = "default";
  EXPECT_THAT(read("text:\n",
                   [&](Fields& f) {
                     f.flag({"flag", ""}, flag);
                     f.text({"text", ""}, text);
                   }),
              IsEmpty());
  EXPECT_TRUE(flag);
  EXPECT_EQ(text, "default");
}

TEST_F(ReaderTest, WrongValuesNameTheKeyTheValueAndWhatWouldBeRight) {
  bool flag = false;
  std::int64_t integer = 3;
  std::size_t choice = 0;
  std::uint64_t bytes = 5;
  std::vector<std::string> texts;
  const auto problems =
      read("flag: yes\ninteger: -1\nchoice: c\nbytes: lots\ntexts: {a: 1}\ninner: 4\nlist: {}\n",
           [&](Fields& f) {
             f.flag({"flag", ""}, flag);
             f.integer({"integer", ""}, {.least = 0, .most = 9}, integer);
             f.choice({"choice", ""}, {"a", "b"}, choice);
             f.bytes({"bytes", ""}, bytes);
             f.texts({"texts", ""}, texts);
             f.section({"inner", ""}, [](Fields&) { FAIL(); });
             f.sections({"list", ""}, [](Fields&) { FAIL(); });
           });
  EXPECT_THAT(problems,
              ElementsAre("f, line 1: flag: \"yes\" is neither true nor false",
                          "f, line 2: integer: \"-1\" is not a whole number of at least 0 and at "
                          "most 9",
                          "f, line 3: choice: \"c\" is not one of a, b",
                          AllOf(HasSubstr("line 4: bytes: "), HasSubstr("\"lots\"")),
                          "f, line 5: texts: want a string or a list of strings",
                          "f, line 6: inner: is a single value; want a map",
                          "f, line 7: list: is a map; want a list of maps"));
  EXPECT_EQ(integer, 3);
  EXPECT_EQ(bytes, 5U);
}

TEST_F(ReaderTest, WhatIsMalformedIsNotJudgedAsWell) {
  Duration time{};
  EXPECT_THAT(read("time: 2\n",
                   [&](Fields& f) {
                     f.duration({"time", ""}, time);
                     require_positive(f, "time", time);
                   }),
              ElementsAre(HasSubstr("\"2\" is not a span of time")));
}

TEST_F(ReaderTest, UnknownKeysGetTheNearestKnownOne) {
  std::string text;
  const auto problems = read("outer:\n  adress: x\n  zzzzzzzz: 1\n", [&](Fields& f) {
    f.section({"outer", ""}, [&](Fields& inner) { inner.text({"address", ""}, text); });
  });
  EXPECT_THAT(problems,
              ElementsAre("f, line 2: outer.adress: is not a known key; did you mean \"address\"?",
                          "f, line 3: outer.zzzzzzzz: is not a known key; known here: address"));
}

TEST_F(ReaderTest, KeysThatHaveNoEffectAreWarnedOf) {
  const auto problems =
      read("one: 1\n", [&](Fields& f) { f.ignore({"one", "two"}, "has no effect"); });
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_THAT(diagnosis_.warnings, ElementsAre("f, line 1: one: has no effect"));
}

TEST_F(ReaderTest, OneOfSeveralKeysMustBeThere) {
  const auto declare = [&](Fields& f) { f.require_one({"a", "b"}, "say where it is"); };
  EXPECT_THAT(read("c: 1\n", declare),
              testing::Contains("f, line 1: a: is missing: say where it is"));
}

TEST_F(ReaderTest, CommandsAreSplitOrLists) {
  std::vector<std::string> text;
  std::vector<std::string> list;
  const auto problems =
      read("text: run 'a b'\nlist: [run it, 'a b']\nbad: \"'\"\n", [&](Fields& f) {
        f.command({"text", ""}, text);
        f.command({"list", ""}, list);
        std::vector<std::string> bad;
        f.command({"bad", ""}, bad);
      });
  EXPECT_THAT(text, ElementsAre("run", "a b"));
  EXPECT_THAT(list, ElementsAre("run it", "a b"));
  EXPECT_THAT(problems, ElementsAre("f, line 3: bad: the quote ' is not closed"));
}

TEST_F(ReaderTest, ValuesAreJson) {
  std::vector<std::pair<std::string, std::string>> values;
  const auto problems = read("v: {a: 1, b: '1', c: [.5, yes, true, ~], d: {e: x}}\n",
                             [&](Fields& f) { f.values({"v", ""}, values); });
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_THAT(values,
              ElementsAre(testing::Pair("a", "1"),
                          testing::Pair("b", "\"1\""),
                          testing::Pair("c", "[0.5,\"yes\",true,null]"),
                          testing::Pair("d", "{\"e\":\"x\"}")));
}

TEST_F(ReaderTest, NamedSectionsAndMissingKeys) {
  std::vector<std::string> names;
  const auto problems = read("m:\n  a/b:c: {}\n  two: 7\n", [&](Fields& f) {
    f.named_sections({"m", ""}, [&](const std::string& name, Fields& inner) {
      names.push_back(name);
      inner.require("path", "say where it is");
    });
  });
  EXPECT_THAT(names, ElementsAre("a/b:c"));
  EXPECT_THAT(problems,
              ElementsAre("f, line 2: m.a/b:c.path: is missing: say where it is",
                          "f, line 3: m: m.two is a single value; want a map"));
}

}  // namespace
}  // namespace heddle::config
