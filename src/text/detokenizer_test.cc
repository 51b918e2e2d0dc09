#include "text/detokenizer.h"

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "text/test_tokenizers.h"

namespace heddle::text {
namespace {

using Ids = std::vector<TokenId>;

Ids byte_tokens(const Tokenizer& tokenizer, const std::string& bytes) {
  Ids ids;
  for (const char byte : bytes) {
    char name[8];
    std::snprintf(
        name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    ids.push_back(tokenizer.token_to_id(name).value());
  }
  return ids;
}

TEST(Detokenizer, HoldsBackPartsOfACharacter) {
  const auto tokenizer = golden_tokenizer("gpt2");
  Detokenizer detokenizer(tokenizer, ShowSpecial::kNo);
  // The euro sign, byte by byte: E2 82 AC in GPT-2's alphabet.
  EXPECT_EQ(detokenizer.push(*tokenizer->token_to_id("â")), "");
  EXPECT_EQ(detokenizer.push(*tokenizer->token_to_id("Ĥ")), "");
  EXPECT_EQ(detokenizer.push(*tokenizer->token_to_id("¬")), "€");
  EXPECT_EQ(detokenizer.push(*tokenizer->token_to_id("â")), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
}

TEST(Detokenizer, EmitsEachTokenAtOnceOtherwise) {
  const auto tokenizer = golden_tokenizer("gpt2");
  Detokenizer detokenizer(tokenizer, ShowSpecial::kNo);
  for (const char* piece : {"the", "Ġmodel", "Ġpage"}) {
    EXPECT_NE(detokenizer.push(*tokenizer->token_to_id(piece)), "") << piece;
  }
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, AByteRunIsValidOrNotAsAWhole) {
  const auto tokenizer = golden_tokenizer("llama2");
  for (const auto& [bytes, want] : {std::pair{"\xE4\xBD\xA0\xE5\xA5\xBD", "你好"},
                                    std::pair{"\xE4\xBD\xA0\xFF", "\uFFFD\uFFFD\uFFFD\uFFFD"}}) {
    const Ids ids = byte_tokens(*tokenizer, bytes);
    Detokenizer detokenizer(tokenizer, ShowSpecial::kNo);
    for (const TokenId id : ids) {
      EXPECT_EQ(detokenizer.push(id), "");
    }
    EXPECT_EQ(detokenizer.push(*tokenizer->token_to_id("▁the")), std::string(want) + " the");
    EXPECT_EQ(*tokenizer->decode(ids, ShowSpecial::kNo), want);
  }
}

TEST(Detokenizer, StripsTheSpaceOfTheFirstWordOnly) {
  for (const char* name : {"llama2", "unigram"}) {
    const auto tokenizer = golden_tokenizer(name);
    const TokenId the = tokenizer->token_to_id("▁the").value();
    Detokenizer detokenizer(tokenizer, ShowSpecial::kNo);
    EXPECT_EQ(detokenizer.push(the), "the") << name;
    EXPECT_EQ(detokenizer.push(the), " the") << name;
  }
}

TEST(Detokenizer, SkippedTokensDoNotCountAsFirst) {
  const auto tokenizer = golden_tokenizer("unigram");
  const TokenId the = tokenizer->token_to_id("▁the").value();
  const TokenId special = tokenizer->token_to_id("<|begin|>").value();
  Detokenizer hides(tokenizer, ShowSpecial::kNo);
  EXPECT_EQ(hides.push(special), "");
  EXPECT_EQ(hides.push(the), "the");
  Detokenizer shows(tokenizer, ShowSpecial::kYes);
  EXPECT_EQ(shows.push(special), "<|begin|>");
  EXPECT_EQ(shows.push(the), " the");
}

TEST(Detokenizer, StartsANewTextAfterFlush) {
  const auto tokenizer = golden_tokenizer("llama2");
  const TokenId the = tokenizer->token_to_id("▁the").value();
  Detokenizer detokenizer(tokenizer, ShowSpecial::kNo);
  EXPECT_EQ(detokenizer.push(the), "the");
  EXPECT_EQ(detokenizer.flush(), "");
  EXPECT_EQ(detokenizer.push(the), "the");
}

TEST(Detokenizer, IdsThatNoTokenHasAddNothing) {
  const auto tokenizer = golden_tokenizer("llama2");
  Detokenizer detokenizer(tokenizer, ShowSpecial::kYes);
  EXPECT_EQ(detokenizer.push(-5), "");
  EXPECT_EQ(detokenizer.push(tokenizer->vocab_size()), "");
  EXPECT_EQ(detokenizer.push(*tokenizer->token_to_id("▁the")), "the");
}

TEST(Detokenizer, TokenizersItCannotStreamAreRefusedAtOpen) {
  std::string json = golden_tokenizer_json("no_decoder");
  const std::string none = "\"decoder\":null";
  ASSERT_NE(json.find(none), std::string::npos);
  json.replace(json.find(none), none.size(), R"("decoder":{"type":"BPEDecoder","suffix":"</w>"})");
  const auto tokenizer = Tokenizer::open(json);
  ASSERT_FALSE(tokenizer);
  EXPECT_NE(tokenizer.error().message.find("one token at a time"), std::string::npos);
}

}  // namespace
}  // namespace heddle::text
