#include "text/tokenizer.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/test_tokenizers.h"

namespace heddle::text {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, SpecialTokens::kNone);
  EXPECT_TRUE(ids) << (ids ? "" : ids.error().message);
  return ids ? *ids : Ids{};
}

TEST(Tokenizer, GivesBackWhatWasEncoded) {
  const auto tokenizer = golden_tokenizer("llama3");
  const std::string text = "Привет, 😀 world\r\n\tx  y";
  const auto decoded = tokenizer->decode(encoded(*tokenizer, text), ShowSpecial::kNo);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, text);
}

/// Words of one letter, between [CLS] and [SEP] as BERT has them, pairs in two types.
std::shared_ptr<const Tokenizer> pair_tokenizer(bool typed = true) {
  const std::string second = typed ? "1" : "0";
  const auto special = [](const std::string& token, const std::string& type) {
    return R"({"SpecialToken":{"id":")" + token + R"(","type_id":)" + type + "}}";
  };
  const auto part = [](const std::string& which, const std::string& type) {
    return R"({"Sequence":{"id":")" + which + R"(","type_id":)" + type + "}}";
  };
  const std::string single =
      special("[CLS]", "0") + "," + part("A", "0") + "," + special("[SEP]", "0");
  const std::string json =
      R"({"version":"1.0","truncation":null,"padding":null,"normalizer":null,"decoder":null,
"added_tokens":[],"pre_tokenizer":{"type":"Whitespace"},"post_processor":{
"type":"TemplateProcessing","single":[)" +
      single + R"(],"pair":[)" + single + "," + part("B", second) + "," + special("[SEP]", second) +
      R"(],"special_tokens":{
"[CLS]":{"id":"[CLS]","ids":[1],"tokens":["[CLS]"]},
"[SEP]":{"id":"[SEP]","ids":[2],"tokens":["[SEP]"]}}},
"model":{"type":"WordLevel","unk_token":"?","vocab":{
"?":0,"[CLS]":1,"[SEP]":2,"a":3,"b":4,"c":5,"d":6}}})";
  auto tokenizer = Tokenizer::open(json);
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? *tokenizer : nullptr;
}

TEST(Tokenizer, APairIsWhatTheTokenizerMakesOfIt) {
  const auto encoded = pair_tokenizer()->encode_texts("a b", "c d", 0);
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->tokens, (Ids{1, 3, 4, 2, 5, 6, 2}));
  EXPECT_EQ(encoded->second_text, 4);
  const auto untyped = pair_tokenizer(false)->encode_texts("a b", "c d", 0);
  ASSERT_TRUE(untyped);
  EXPECT_EQ(untyped->tokens, encoded->tokens);
  EXPECT_EQ(untyped->second_text, 0);
  const auto one = pair_tokenizer()->encode_texts("a b", std::nullopt, 0);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->tokens, (Ids{1, 3, 4, 2}));
  EXPECT_EQ(one->tokens, *pair_tokenizer()->encode("a b", SpecialTokens::kAdd));
}

TEST(Tokenizer, WhatIsTooLongIsCutBeforeWhatIsAdded) {
  const auto tokenizer = pair_tokenizer();
  EXPECT_EQ(tokenizer->encode_texts("a b c d", std::nullopt, 4)->tokens, (Ids{1, 3, 4, 2}));
  EXPECT_EQ(tokenizer->encode_texts("a b", "c d a", 6)->tokens, (Ids{1, 3, 4, 2, 5, 2}));
  EXPECT_EQ(tokenizer->encode_texts("a b", "c", 99)->tokens, (Ids{1, 3, 4, 2, 5, 2}));
  const auto none = tokenizer->encode_texts("a b c", "d", 6);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  EXPECT_THAT(none.error().message, HasSubstr("6 tokens are there beside the text"));
  EXPECT_FALSE(tokenizer->encode_texts("a", "\xff", 0));
}

TEST(Tokenizer, AddsSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = golden_tokenizer("llama3");
  const auto begin = tokenizer->token_to_id("<|begin|>");
  ASSERT_TRUE(begin);
  EXPECT_TRUE(tokenizer->is_special(*begin));
  const auto with = tokenizer->encode("a", SpecialTokens::kAdd);
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->front(), *begin);
  EXPECT_EQ(Ids(with->begin() + 1, with->end()), encoded(*tokenizer, "a"));
}

TEST(Tokenizer, ShowsSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = golden_tokenizer("llama3");
  const Ids ids = encoded(*tokenizer, "<|begin|>a");
  EXPECT_EQ(*tokenizer->decode(ids, ShowSpecial::kNo), "a");
  EXPECT_EQ(*tokenizer->decode(ids, ShowSpecial::kYes), "<|begin|>a");
}

TEST(Tokenizer, IgnoresPaddingAndTruncation) {
  const nlohmann::json json = nlohmann::json::parse(golden_tokenizer_json("gpt2"));
  ASSERT_TRUE(json.at("truncation").is_object());
  ASSERT_TRUE(json.at("padding").is_object());
  const auto tokenizer = golden_tokenizer("gpt2");
  EXPECT_EQ(encoded(*tokenizer, "x").size(), 1U);
  EXPECT_GT(
      encoded(*tokenizer, std::string(100, '.') + "the the the the the the the the the").size(),
      12U);
}

TEST(Tokenizer, TokenBytesAreWhatTokensStandFor) {
  const auto llama3 = golden_tokenizer("llama3");
  EXPECT_EQ(llama3->token_bytes(*llama3->token_to_id("Ġthe")), " the");
  EXPECT_EQ(llama3->token_bytes(*llama3->token_to_id("Ã")), "\xC3");
  EXPECT_EQ(llama3->token_bytes(*llama3->token_to_id("<|end|>")), "<|end|>");
  const auto llama2 = golden_tokenizer("llama2");
  EXPECT_EQ(llama2->token_bytes(*llama2->token_to_id("▁the")), " the");
  EXPECT_EQ(llama2->token_bytes(*llama2->token_to_id("<0xE4>")), "\xE4");
  for (const TokenId id : {-1, llama2->vocab_size(), llama2->vocab_size() + 1000}) {
    EXPECT_EQ(llama2->token_bytes(id), "");
    EXPECT_FALSE(llama2->is_special(id));
  }
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const auto tokenizer = golden_tokenizer("llama3");
  EXPECT_GT(tokenizer->vocab_size(), 256);
  EXPECT_NE(tokenizer->token_bytes(tokenizer->vocab_size() - 1), "");
  EXPECT_FALSE(tokenizer->token_to_id("no such token"));
  EXPECT_FALSE(tokenizer->token_to_id("\xff"));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = golden_tokenizer("gpt2");
  for (const char* text :
       {"a\xff", "\xED\xA0\x80" /* a lone surrogate */, "\xC0\xAF", "\xE2\x82"}) {
    const auto ids = tokenizer->encode(text, SpecialTokens::kNone);
    ASSERT_FALSE(ids) << text;
    EXPECT_EQ(ids.error().code, Code::kInvalidArgument);
    EXPECT_THAT(ids.error().message, HasSubstr("UTF-8"));
  }
}

TEST(Tokenizer, DecodeRefusesNegativeIdsAndSkipsUnknownOnes) {
  const auto tokenizer = golden_tokenizer("gpt2");
  const auto negative = tokenizer->decode(Ids{-1}, ShowSpecial::kNo);
  ASSERT_FALSE(negative);
  EXPECT_THAT(negative.error().message, HasSubstr("-1"));
  EXPECT_EQ(*tokenizer->decode(Ids{tokenizer->vocab_size() + 7}, ShowSpecial::kNo), "");
  EXPECT_EQ(*tokenizer->decode(Ids{}, ShowSpecial::kNo), "");
}

TEST(Tokenizer, BrokenFilesGiveOneError) {
  const std::string good = golden_tokenizer_json("llama2");
  const std::string bad[] = {"",
                             "{",
                             "[]",
                             "{}",
                             "null",
                             good.substr(0, good.size() / 2),
                             "\xff\xfe",
                             std::string(100000, '[')};
  for (const std::string& json : bad) {
    const auto tokenizer = Tokenizer::open(json);
    ASSERT_FALSE(tokenizer) << json.substr(0, 20);
    EXPECT_EQ(tokenizer.error().code, Code::kCorrupt);
    EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer.json"));
  }
}

/// One field of a good tokenizer.json replaced by nonsense: an error, or a tokenizer that works.
TEST(Tokenizer, OddFieldsDoNotTakeTheProcessDown) {
  const nlohmann::json good = nlohmann::json::parse(golden_tokenizer_json("llama2"));
  int refused = 0;
  for (const char* odd : {"0",
                          "null",
                          "-1",
                          "\"x\"",
                          "[]",
                          "{}",
                          "[[1]]",
                          "{\"type\": \"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 9}"}) {
    for (const auto& [key, value] : good.items()) {
      nlohmann::json json = good;
      json[key] = nlohmann::json::parse(odd);
      const auto tokenizer = Tokenizer::open(json.dump());
      refused += tokenizer ? 0 : 1;
      if (tokenizer) {
        (void)(*tokenizer)->encode("a b é", SpecialTokens::kAdd);  // Any outcome but a crash.
        (void)(*tokenizer)->decode(Ids{0, 1, 300}, ShowSpecial::kYes);
      }
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(Tokenizer, APanicOfTheLibraryIsAnError) {
  nlohmann::json json = nlohmann::json::parse(golden_tokenizer_json("no_decoder"));
  // Strips more characters from the end than "a" has: an index out of range in the library.
  json["decoder"] = {{"type", "Strip"}, {"content", "a"}, {"start", 0}, {"stop", 9}};
  const auto tokenizer = Tokenizer::open(json.dump());
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, Code::kCorrupt);
  EXPECT_THAT(tokenizer.error().message, HasSubstr("the text library failed"));
}

TEST(Tokenizer, HugeIdsAreRefused) {
  nlohmann::json json = nlohmann::json::parse(golden_tokenizer_json("no_decoder"));
  json["model"]["vocab"]["far"] = 4'000'000'000U;
  const auto tokenizer = Tokenizer::open(json.dump());
  ASSERT_FALSE(tokenizer);
  EXPECT_THAT(tokenizer.error().message, HasSubstr("4000000000"));
}

TEST(Tokenizer, WhatGoesAroundATextIsInTheVocabulary) {
  nlohmann::json json = nlohmann::json::parse(golden_tokenizer_json("no_decoder"));
  for (const std::uint32_t id : {100'000U, 4'294'967'295U}) {
    json["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", {"s", id}},
                              {"cls", {"c", 1}},
                              {"trim_offsets", true},
                              {"add_prefix_space", true}};
    const auto tokenizer = Tokenizer::open(json.dump());
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().code, Code::kCorrupt);
    EXPECT_THAT(tokenizer.error().message, HasSubstr("adds token " + std::to_string(id)));
  }
}

TEST(Tokenizer, BrokenConfigsGiveOneError) {
  const std::string good = golden_tokenizer_json("gpt2");
  const char* bad[] = {
      "{",
      R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
      R"({"added_tokens_decoder": {"5": {}}})",
      R"({"added_tokens_decoder": {"5": {"content": "not at five"}}})",
  };
  for (const char* config : bad) {
    const auto tokenizer = Tokenizer::open(good, config);
    ASSERT_FALSE(tokenizer) << config;
    EXPECT_EQ(tokenizer.error().code, Code::kCorrupt);
    EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer_config.json"));
  }
}

TEST(Tokenizer, TheConfigSaysWhatGoesAroundWhereTokenizerJsonDoesNot) {
  const char* config = R"({"add_bos_token": true, "add_eos_token": true,
                           "bos_token": "<|begin|>", "eos_token": "<|end|>"})";
  const auto silent = Tokenizer::open(golden_tokenizer_json("qwen2"), config);
  ASSERT_TRUE(silent) << silent.error().message;
  const TokenId begin = (*silent)->token_to_id("<|begin|>").value();
  const TokenId end = (*silent)->token_to_id("<|end|>").value();
  EXPECT_EQ(*(*silent)->encode("", SpecialTokens::kAdd), (Ids{begin, end}));
  EXPECT_EQ(*(*silent)->encode("", SpecialTokens::kNone), Ids{});
  const auto speaks = Tokenizer::open(golden_tokenizer_json("llama3"), config);
  ASSERT_TRUE(speaks) << speaks.error().message;
  EXPECT_EQ(*(*speaks)->encode("", SpecialTokens::kAdd), Ids{begin});
}

TEST(Tokenizer, ServesManyThreadsAtOnce) {
  const auto tokenizer = golden_tokenizer("llama3");
  const Ids want = encoded(*tokenizer, "the model of two pages 😀");
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto ids = tokenizer->encode("the model of two pages 😀", SpecialTokens::kNone);
        wrong += !ids || *ids != want ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace heddle::text
