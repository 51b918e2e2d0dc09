#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "goldens.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace heddle::text {
namespace {

using Ids = std::vector<TokenId>;

std::shared_ptr<const Tokenizer> open_golden(const std::string& name) {
  const auto path = std::filesystem::path(HEDDLE_GOLDENS_DIR) / name / "tokenizer.json";
  auto tokenizer = Tokenizer::open(read_text(path));
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? *tokenizer : nullptr;
}

/// Decodes one id at a time; every part must be UTF-8 by itself.
std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                   std::span<const TokenId> ids,
                   ShowSpecial special) {
  Detokenizer detokenizer(tokenizer, special);
  std::string text;
  const auto add = [&](const std::string& part) {
    EXPECT_FALSE(Json(part).dump(-1, ' ', false, Json::error_handler_t::ignore) !=
                 Json(part).dump(-1, ' ', false, Json::error_handler_t::replace));
    text += part;
  };
  for (const TokenId id : ids) {
    add(detokenizer.push(id));
  }
  add(detokenizer.flush());
  return text;
}

class FamilyTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(FamilyTokenizer, EncodesLikePython) {
  const auto tokenizer = open_golden(GetParam());
  const Json cases = read_golden(std::filesystem::path(GetParam()) / "cases.json");
  ASSERT_GT(cases.at("encode").size(), 100U);
  for (const Json& item : cases.at("encode")) {
    const std::string text = item.at(0).get<std::string>();
    const Ids plain = item.at(1).get<Ids>();
    Ids added = item.at(2).get<Ids>();
    added.insert(added.end(), plain.begin(), plain.end());
    const Ids after = item.at(3).get<Ids>();
    added.insert(added.end(), after.begin(), after.end());
    const auto without = tokenizer->encode(text, SpecialTokens::kNone);
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_EQ(*without, plain) << Json(text);
    const auto with = tokenizer->encode(text, SpecialTokens::kAdd);
    ASSERT_TRUE(with) << with.error().message;
    EXPECT_EQ(*with, added) << Json(text);
  }
}

TEST_P(FamilyTokenizer, DecodesLikePython) {
  const auto tokenizer = open_golden(GetParam());
  const Json cases = read_golden(std::filesystem::path(GetParam()) / "cases.json");
  ASSERT_GT(cases.at("decode").size(), 50U);
  for (const Json& item : cases.at("decode")) {
    const Ids ids = item.at(0).get<Ids>();
    for (const ShowSpecial special : {ShowSpecial::kNo, ShowSpecial::kYes}) {
      const std::string want = item.at(special == ShowSpecial::kNo ? 1 : 2).get<std::string>();
      const auto whole = tokenizer->decode(ids, special);
      ASSERT_TRUE(whole) << whole.error().message;
      EXPECT_EQ(*whole, want) << item;
      EXPECT_EQ(stream(tokenizer, ids, special), want) << item;
    }
  }
}

TEST_P(FamilyTokenizer, StreamsLikeItDecodes) {
  const auto tokenizer = open_golden(GetParam());
  const auto bound = static_cast<std::uint64_t>(tokenizer->vocab_size()) + 3;
  constexpr std::uint64_t kSeed = 20251;
  Rng rng(kSeed);
  for (int round = 0; round < 3000; ++round) {
    Ids ids(rng.below(30));
    const std::uint64_t pool = round % 2 == 0 ? bound : std::min<std::uint64_t>(bound, 300);
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(rng.below(pool));
    }
    const ShowSpecial special = rng.below(2) == 0 ? ShowSpecial::kNo : ShowSpecial::kYes;
    const auto whole = tokenizer->decode(ids, special);
    ASSERT_TRUE(whole) << whole.error().message;
    ASSERT_EQ(stream(tokenizer, ids, special), *whole)
        << "seed " << kSeed << " round " << round << " ids " << Json(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         FamilyTokenizer,
                         testing::Values("gpt2",
                                         "llama3",
                                         "qwen2",
                                         "llama2",
                                         "mistral",
                                         "no_prefix",
                                         "gemma",
                                         "unigram",
                                         "unigram_bytes",
                                         "no_decoder"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(TokenizerConfig, ActsAsInTransformers) {
  const std::string base =
      read_text(std::filesystem::path(HEDDLE_GOLDENS_DIR) / "llama3/tokenizer.json");
  const Json models = read_golden("models.json");
  ASSERT_EQ(models.size(), 4U);
  for (const auto& [name, golden] : models.items()) {
    const auto tokenizer = Tokenizer::open(base, golden.at("config").dump());
    ASSERT_TRUE(tokenizer) << name << ": " << tokenizer.error().message;
    for (const Json& item : golden.at("ids")) {
      const auto ids = (*tokenizer)->encode(item.at(0).get<std::string>(), SpecialTokens::kAdd);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(*ids, item.at(1).get<Ids>()) << name << " " << item.at(0);
    }
    for (const Json& id : golden.at("special")) {
      EXPECT_TRUE((*tokenizer)->is_special(id.get<TokenId>())) << name << " " << id;
    }
  }
}

}  // namespace
}  // namespace heddle::text
