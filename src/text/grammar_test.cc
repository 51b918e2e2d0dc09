#include "text/grammar.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "text/test_model_directory.h"

#include <pthread.h>

namespace heddle::text {
namespace {

using spec::Grammar;
using spec::GrammarKind;
using spec::Thought;

/// Ids below 256 are bytes; see ByteModelDirectory.
constexpr TokenId kEos = 256;
constexpr std::int64_t kVocab = 300;  // More than the tokenizer has.

class GrammarTest : public testing::Test {
 protected:
  GrammarTest()
      : model_(TextModel::open(directory_.path()).value()),
        vocabulary_(GrammarVocabulary::make(*model_, kVocab).value()) {}

  [[nodiscard]] Result<std::shared_ptr<GrammarMatcher>> open(
      GrammarKind kind, const std::string& text, Thought thought = Thought::kNone) const {
    return GrammarMatcher::open(vocabulary_, {.kind = kind, .text = text, .thought = thought});
  }
  [[nodiscard]] static std::vector<TokenId> allowed(GrammarMatcher& grammar) {
    std::vector<std::uint32_t> words((kVocab + 31) / 32, ~0U);
    const Result<void> masked = grammar.mask(words);
    EXPECT_TRUE(masked) << masked.error().message;
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < std::ssize(words) * 32; ++token) {
      if (((words[static_cast<std::size_t>(token) / 32] >> (token % 32)) & 1U) != 0) {
        tokens.push_back(token);
      }
    }
    return tokens;
  }
  /// The bytes that may come next; '$' for the end.
  [[nodiscard]] static std::string letters(GrammarMatcher& grammar) {
    std::string text;
    for (const TokenId token : allowed(grammar)) {
      text += token == kEos ? '$' : static_cast<char>(token);
    }
    return text;
  }
  static void take(GrammarMatcher& grammar, const std::string& text) {
    for (const char c : text) {
      const TokenId token = static_cast<unsigned char>(c);
      const Result<void> taken = grammar.accept({&token, 1});
      ASSERT_TRUE(taken) << taken.error().message;
    }
  }
  /// A text that conforms, each byte drawn from those that are allowed.
  [[nodiscard]] static std::string draw(GrammarMatcher& grammar, Rng& rng) {
    std::string text;
    while (!grammar.ended() && text.size() < 2000) {
      const std::vector<TokenId> tokens = allowed(grammar);
      EXPECT_FALSE(tokens.empty());
      const bool may_end = tokens.back() == kEos;
      // Ends where it may, so that texts stay short.
      const TokenId token =
          may_end ? kEos : tokens[static_cast<std::size_t>(rng.next() % tokens.size())];
      EXPECT_TRUE(grammar.accept({&token, 1}));
      if (token != kEos) {
        text += static_cast<char>(token);
      }
    }
    return text;
  }

  ByteModelDirectory directory_{};
  std::shared_ptr<const TextModel> model_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
};

TEST_F(GrammarTest, WhiteSpaceInJsonComesToAnEnd) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],)"
      R"("additionalProperties":false})";
  const auto indented = open(GrammarKind::kJsonSchema, schema).value();
  take(*indented, "{\n" + std::string(32, ' '));
  EXPECT_EQ(letters(*indented), "\"");
  const auto spaced = open(GrammarKind::kJsonSchema, schema).value();
  take(*spaced, "{ ");
  EXPECT_EQ(letters(*spaced), "\"");
}

TEST_F(GrammarTest, WhiteSpaceComesToAnEndWhereverASchemaStands) {
  const std::vector<std::pair<GrammarKind, std::string>> grammars = {
      {GrammarKind::kJsonSchema, R"({"type":"object"})"},
      {GrammarKind::kJsonSchema, "true"},
      {GrammarKind::kJsonSchema, R"({"type":"object","x-guidance":{}})"},
      {GrammarKind::kLark, R"(start: %json {"type": "object"})"},
      {GrammarKind::kLark, "start: %json {}"},
      {GrammarKind::kLark, "start: %json true"}};
  for (const auto& [kind, text] : grammars) {
    for (const std::string before : {"{", R"({"a")", R"({"a":)", R"({"a":1,)", R"({"a":[)", "{}"}) {
      for (const char first : {' ', '\t', '\n'}) {
        const auto grammar = open(kind, text).value();
        take(*grammar, before);
        std::size_t blanks = 0;
        char next = first;
        while (letters(*grammar).find(next) != std::string::npos && blanks < 100) {
          take(*grammar, std::string(1, next));
          ++blanks;
          next = letters(*grammar).find(first) != std::string::npos ? first : ' ';
        }
        EXPECT_LE(blanks, 33U) << text << " after " << before;
      }
    }
  }
}

TEST_F(GrammarTest, WhatLeadsDeepIsRefusedAndWhatDoesNotNeedsLittleStack) {
  const auto schema = [](int links) {
    std::string text = R"({"$ref":"#/$defs/a0","$defs":{)";
    for (int i = 0; i < links; ++i) {
      text += "\"a" + std::to_string(i) +
              R"(":{"type":"object","properties":{"x":{"$ref":"#/$defs/a)" + std::to_string(i + 1) +
              "\"}}},";
    }
    return text + "\"a" + std::to_string(links) + R"(":{"type":"null"}}})";
  };
  const auto lark = [](int links, char kind) {
    std::string text = "start: " + std::string(1, kind) + "0\n";
    for (int i = 0; i < links; ++i) {
      text += kind + std::to_string(i) + ": \"x\" " + kind + std::to_string(i + 1) + " | \"y\"\n";
    }
    return text + kind + std::to_string(links) + ": \"z\"\n";
  };
  for (const int links : {1500, 2400}) {
    for (const auto& refused : {open(GrammarKind::kJsonSchema, schema(links)),
                                open(GrammarKind::kLark, lark(links, 'a')),
                                open(GrammarKind::kLark, lark(links, 'A'))}) {
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
      EXPECT_THAT(refused.error().message, testing::HasSubstr("the limit is 1000"));
    }
  }
  for (const auto& grammar : {open(GrammarKind::kJsonSchema, schema(300)),
                              open(GrammarKind::kLark, lark(900, 'a')),
                              open(GrammarKind::kLark, lark(900, 'A'))}) {
    ASSERT_TRUE(grammar) << grammar.error().message;
    const auto use = [](void* given) -> void* {
      GrammarMatcher& matcher = *static_cast<GrammarMatcher*>(given);
      for (int step = 0; step < 20; ++step) {
        const std::vector<TokenId> tokens = allowed(matcher);
        EXPECT_FALSE(tokens.empty());
        EXPECT_TRUE(matcher.accept({tokens.data(), 1}));
      }
      return nullptr;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{512} << 10U), 0);
    pthread_t thread{};
    ASSERT_EQ(pthread_create(&thread, &attributes, use, grammar->get()), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
}

TEST_F(GrammarTest, ARegexAllowsWhatMayComeNextAndTheEndWhereItMayEnd) {
  const auto grammar = open(GrammarKind::kRegex, "ab?c").value();
  EXPECT_EQ(letters(*grammar), "a");
  take(*grammar, "a");
  EXPECT_EQ(letters(*grammar), "bc");
  EXPECT_FALSE(grammar->ended());
  take(*grammar, "c");
  EXPECT_TRUE(grammar->ended());
  EXPECT_EQ(letters(*grammar), "$") << "a mask is never empty";
}

TEST_F(GrammarTest, TheEndIsAllowedBesideMoreText) {
  const auto grammar = open(GrammarKind::kRegex, "x+").value();
  take(*grammar, "x");
  EXPECT_EQ(letters(*grammar), "x$");
  const TokenId end = kEos;
  ASSERT_TRUE(grammar->accept({&end, 1}));
  EXPECT_TRUE(grammar->ended());
}

TEST_F(GrammarTest, WhatIsNotAllowedIsRefusedByTheMaskAndByAccept) {
  const auto grammar = open(GrammarKind::kLark, R"(start: "yes" | "no")").value();
  EXPECT_EQ(letters(*grammar), "ny");
  const TokenId wrong = 'q';
  const Result<void> taken = grammar->accept({&wrong, 1});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::kInvalidArgument);
}

TEST_F(GrammarTest, WhateverIsDrawnUnderASchemaIsJsonOfThatSchema) {
  const std::string schema = R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"},
      "kind": {"enum": ["a", "b"]}, "tags": {"type": "array", "items": {"type": "boolean"},
      "maxItems": 3}}, "required": ["name", "age", "kind"], "additionalProperties": false})";
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const auto grammar = open(GrammarKind::kJsonSchema, schema).value();
    const std::string text = draw(*grammar, rng);
    if (!grammar->ended()) {
      continue;  // A number without end; the rest is checked.
    }
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << "seed " << seed << ": " << text;
    EXPECT_TRUE(json["name"].is_string() && json["age"].is_number_integer()) << text;
    EXPECT_TRUE(json["kind"] == "a" || json["kind"] == "b") << text;
    for (const auto& [key, value] : json.items()) {
      EXPECT_TRUE(key == "name" || key == "age" || key == "kind" || key == "tags") << text;
    }
  }
}

TEST_F(GrammarTest, AThoughtThatWasBegunIsFreeUntilItEnds) {
  for (const auto& [kind, text] : {std::pair(GrammarKind::kRegex, "ab|ac"),
                                   {GrammarKind::kLark, "start: \"a\" (\"b\" | \"c\")"}}) {
    for (const std::string gap : {"", "\n", "\n\n"}) {
      const auto grammar = open(kind, text, Thought::kBegun).value();
      const std::vector<TokenId> first = allowed(*grammar);
      EXPECT_GT(first.size(), 120U) << "all of ASCII at least";
      EXPECT_NE(first.back(), kEos) << "a thought alone is no answer";
      take(*grammar, "ab? {\"c\": </thin </think>" + gap);
      EXPECT_EQ(letters(*grammar), gap.size() < 2 ? "\na" : "a");
      take(*grammar, "a");
      EXPECT_EQ(letters(*grammar), "bc");
      take(*grammar, "c");
      EXPECT_TRUE(grammar->ended());
    }
  }
}

TEST_F(GrammarTest, AThoughtMayBeLeftOut) {
  const std::string schema = R"({"type":"object","properties":{"a":{"enum":[1]}},)"
                             R"("required":["a"],"additionalProperties":false})";
  const auto at_once = open(GrammarKind::kJsonSchema, schema, Thought::kMay).value();
  EXPECT_EQ(letters(*at_once), "<{");
  take(*at_once, R"({"a":1})");
  EXPECT_TRUE(at_once->ended());
  const auto thinking = open(GrammarKind::kJsonSchema, schema, Thought::kMay).value();
  take(*thinking, "<think>\n{} is short\n</think>\n\n");
  EXPECT_EQ(letters(*thinking), "{");
  take(*thinking, R"({"a": 1})");
  EXPECT_TRUE(thinking->ended());
  const auto empty = open(GrammarKind::kJsonSchema, schema, Thought::kMay).value();
  take(*empty, R"(<think></think>{"a":1})");
  EXPECT_TRUE(empty->ended());
}

TEST_F(GrammarTest, MarkersOfThoughtsMayBeTokensOfTheirOwn) {
  for (const auto& [special, opening, closing] :
       {std::tuple(false, "<think>", "</think>"),  // As Qwen's are.
        std::tuple(true, "<think>", "</think>"),
        std::tuple(true, "<|channel>", "<channel|>")}) {
    SCOPED_TRACE(std::string(opening) + (special ? " is special" : ""));
    const std::filesystem::path file = directory_.path() / "tokenizer.json";
    nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(file));
    constexpr TokenId kOpen = 258;
    constexpr TokenId kClose = 259;
    for (const auto& [id, content] : {std::pair(kOpen, opening), {kClose, closing}}) {
      nlohmann::json token = tokenizer["added_tokens"][0];
      token["id"] = id;
      token["content"] = content;
      token["special"] = special;
      tokenizer["added_tokens"].push_back(token);
    }
    ByteModelDirectory directory;
    directory.write("tokenizer.json", tokenizer.dump());
    const auto model = TextModel::open(directory.path()).value();
    const auto vocabulary = GrammarVocabulary::make(*model, kVocab).value();
    const auto grammar =
        GrammarMatcher::open(vocabulary,
                             {.kind = GrammarKind::kRegex, .text = "ab", .thought = Thought::kMay})
            .value();
    const std::vector<TokenId> first =
        special ? std::vector<TokenId>{'a', kOpen} : std::vector<TokenId>{'<', 'a', kOpen};
    EXPECT_EQ(allowed(*grammar), first);
    ASSERT_TRUE(grammar->accept({&kOpen, 1}));
    take(*grammar, "\nhm\n");
    const std::vector<TokenId> within = allowed(*grammar);
    EXPECT_THAT(within, testing::IsSupersetOf({TokenId{'x'}, kClose}));
    EXPECT_THAT(within, testing::Not(testing::Contains(kEos)));
    ASSERT_TRUE(grammar->accept({&kClose, 1}));
    EXPECT_EQ(letters(*grammar), "\na");
    take(*grammar, "\n\nab");
    EXPECT_TRUE(grammar->ended());
  }
}

TEST_F(GrammarTest, TakingTheSameTokensInGivesTheSameMask) {
  const std::string schema = R"({"type": "object"})";
  const auto first = open(GrammarKind::kJsonSchema, schema).value();
  const std::string text = R"({"a": [1, {"b")";
  std::vector<TokenId> tokens;
  for (const char c : text) {
    (void)allowed(*first);
    take(*first, std::string(1, c));
    tokens.push_back(static_cast<unsigned char>(c));
  }
  const auto again = open(GrammarKind::kJsonSchema, schema).value();
  ASSERT_TRUE(again->accept(tokens));
  EXPECT_EQ(allowed(*again), allowed(*first));
}

TEST_F(GrammarTest, UniqueItemsAreIgnoredWhereverASchemaStands) {
  const std::string schema = R"({"type":"array","items":{"enum":[1]},"uniqueItems":true})";
  for (const auto& [kind, text] :
       {std::pair{GrammarKind::kJsonSchema, schema},
        std::pair{GrammarKind::kLark, "start: \"x\"? %json " + schema}}) {
    const auto grammar = open(kind, text);
    ASSERT_TRUE(grammar) << grammar.error().message;
    take(**grammar, "[1,1]");
  }
}

TEST_F(GrammarTest, BoundsBelow64BitsAreEnforcedNearlyOrRefused) {
  const auto opened = [this](const std::string& schema) {
    return open(GrammarKind::kJsonSchema, schema);
  };
  // As a generator writes int64, and one of which the library knows no end of recursion.
  const auto int64 =
      opened(R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})");
  ASSERT_TRUE(int64) << int64.error().message;
  take(**int64, "-9223372036854770000");
  EXPECT_FALSE(opened(R"({"type":"integer","minimum":-1e30,"maximum":-1e20})"));
  EXPECT_FALSE(opened(R"({"$ref":"#/default","default":
      {"type":"integer","minimum":-1e30,"maximum":-1e20}})"));
  EXPECT_FALSE(open(GrammarKind::kLark,
                    R"(start: %json {"type":"integer","minimum":-1e30,"maximum":-1e20})"));
}

TEST_F(GrammarTest, WhatIsWrongOrNotSupportedIsSaid) {
  const auto error = [this](GrammarKind kind, const std::string& text) {
    const auto opened = open(kind, text);
    EXPECT_FALSE(opened) << text;
    return opened ? std::string() : opened.error().message;
  };
  EXPECT_NE(error(GrammarKind::kJsonSchema, "{").find("not JSON"), std::string::npos);
  EXPECT_NE(
      error(GrammarKind::kJsonSchema, R"({"type": "array", "contains": {}})").find("contains"),
      std::string::npos);
  EXPECT_NE(error(GrammarKind::kJsonSchema, R"({"type": "quux"})"), "");
  EXPECT_NE(error(GrammarKind::kJsonSchema, R"({"$ref": "https://example.com/x"})"), "");
  EXPECT_NE(error(GrammarKind::kRegex, "a("), "");
  EXPECT_NE(error(GrammarKind::kLark, "start: nowhere"), "");
  EXPECT_NE(error(GrammarKind::kJsonSchema, R"({"type":"string","enum":[]})"), "");
}

TEST_F(GrammarTest, HostileOnesEndInOneErrorSoon) {
  const auto error = [this](GrammarKind kind, const std::string& text) {
    const auto opened = open(kind, text);
    return opened ? std::string("accepted") : opened.error().message;
  };
  EXPECT_NE(error(GrammarKind::kRegex, std::string(100'000, '(')).find("nested"),
            std::string::npos);
  EXPECT_NE(error(GrammarKind::kRegex, std::string(300'000, 'a')).find("limit"), std::string::npos);
  std::string nested;
  for (int i = 0; i < 10'000; ++i) {
    nested += R"({"not":)";
  }
  EXPECT_NE(error(GrammarKind::kJsonSchema, nested).find("nested"), std::string::npos);
  std::string properties;
  for (int i = 0; i < 7000; ++i) {
    properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":{}";
  }
  EXPECT_NE(error(GrammarKind::kJsonSchema, R"({"properties":{)" + properties + "}}")
                .find("7000 entries"),
            std::string::npos);
}

TEST_F(GrammarTest, RepetitionsAreCountedAndNotUnrolled) {
  const auto grammar = open(GrammarKind::kRegex, "((((a{1,999}){1,999}){1,999}){1,999}){1,999}");
  ASSERT_TRUE(grammar);
  EXPECT_EQ(letters(**grammar), "a");
}

TEST_F(GrammarTest, SpecialTokensAreNoText) {
  const auto grammar = open(GrammarKind::kRegex, "(?s:.*)").value();
  for (const TokenId token : allowed(*grammar)) {
    EXPECT_TRUE(token <= kEos) << token;
    EXPECT_NE(token, 257) << "a marker that text may not spell";
  }
  const auto marked = open(GrammarKind::kLark, R"(start: <[257]> "x")").value();
  EXPECT_EQ(allowed(*marked), std::vector<TokenId>{257});
}

}  // namespace
}  // namespace heddle::text
