// The tokenizers of GGUF files against those of the tokenizer.json that they were made of.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/test_directory.h"
#include "base/test_places.h"
#include "gguf/pre_tokenizers.h"
#include "gguf/test_gguf.h"
#include "text/detokenizer.h"
#include "text/test_tokenizers.h"
#include "text/text_model.h"

namespace heddle::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
using testing::ElementsAre;

enum TokenType : std::int32_t { kNormal = 1, kControl = 3, kUser = 4, kByte = 6 };

/// The vocabulary of a tokenizer.json, as conversion writes it.
struct Vocabulary {
  std::vector<std::string> tokens{};
  std::vector<std::int32_t> types{};
};

Vocabulary vocabulary_of(const Json& file) {
  std::map<std::int64_t, std::pair<std::string, std::int32_t>> by_id;
  for (const auto& [token, id] : file.at("model").at("vocab").items()) {
    const bool byte = token.size() == 6 && token.starts_with("<0x");
    by_id[id.get<std::int64_t>()] = {token, byte ? kByte : kNormal};
  }
  for (const Json& added : file.at("added_tokens")) {
    by_id[added.at("id").get<std::int64_t>()] = {
        added.at("content").get<std::string>(), added.at("special").get<bool>() ? kControl : kUser};
  }
  Vocabulary vocabulary;
  for (const auto& [id, token] : by_id) {
    EXPECT_EQ(id, std::ssize(vocabulary.tokens));
    vocabulary.tokens.push_back(token.first);
    vocabulary.types.push_back(token.second);
  }
  return vocabulary;
}

gguf::TestGguf with_vocabulary(const std::string& model, const Vocabulary& vocabulary) {
  gguf::TestGguf file = gguf::small_model("llama", vocabulary.tokens.size());
  file.text("tokenizer.ggml.model", model).texts("tokenizer.ggml.tokens", vocabulary.tokens);
  file.numbers("tokenizer.ggml.token_type", gguf::ValueType::kI32, vocabulary.types);
  return file;
}

std::shared_ptr<const TextModel> opened(const gguf::TestGguf& file) {
  const TempDirectory directory;
  write_text(directory.path() / "m.gguf", file.bytes());
  auto model = TextModel::open(directory.path() / "m.gguf");
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : nullptr;
}

/// A golden tokenizer of byte-level BPE as a GGUF file.
gguf::TestGguf byte_level(const std::string& golden, const std::string& pre) {
  const Json file = Json::parse(golden_tokenizer_json(golden));
  std::vector<std::string> merges;
  for (const Json& merge : file.at("model").at("merges")) {
    merges.push_back(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  gguf::TestGguf made = with_vocabulary("gpt2", vocabulary_of(file));
  made.text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.merges", merges);
  return made;
}

/// The tokens of all golden texts, which have to be the library's.
std::vector<Ids> compare_encodings(const TextModel& model, const std::string& golden) {
  std::ifstream stream(places::source("tests/text/goldens/" + golden + "/cases.json"));
  std::vector<Ids> compared;
  const Json cases = Json::parse(stream);
  for (const Json& one : cases.at("encode")) {
    const auto text = one.at(0).get<std::string>();
    // The golden tokenizer looks for its user-defined token in composed text alone.
    if (text.find("llo") != std::string::npos) {
      continue;
    }
    const auto ids = model.tokenizer()->encode(text, SpecialTokens::kNone);
    EXPECT_TRUE(ids) << text;
    compared.push_back(ids ? *ids : Ids());
    EXPECT_EQ(compared.back(), one.at(1).get<Ids>()) << text;
  }
  return compared;
}

class GgufByteLevelTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(GgufByteLevelTest, TokensAreThoseOfTheLibrary) {
  const auto& [golden, pre] = GetParam();
  const auto model = opened(byte_level(golden, pre));
  ASSERT_NE(model, nullptr);
  const std::vector<Ids> compared = compare_encodings(*model, golden);
  EXPECT_GT(compared.size(), 100U);
  for (const Ids& ids : compared) {
    const auto decoded = model->tokenizer()->decode(ids, ShowSpecial::kYes);
    EXPECT_EQ(*decoded, *golden_tokenizer(golden)->decode(ids, ShowSpecial::kYes));
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         GgufByteLevelTest,
                         testing::Values(std::pair("gpt2", "gpt-2"),
                                         std::pair("llama3", "llama-bpe"),
                                         std::pair("qwen2", "qwen2")));

/// All bytes, and merges that make "1234" of its digits, "ab", " a" and a line's end in a token.
gguf::TestGguf digits(const std::string& pre) {
  const Json file = Json::parse(golden_tokenizer_json("gpt2"));
  Vocabulary vocabulary;
  for (const auto& [token, id] : file.at("model").at("vocab").items()) {
    // Bytes are the tokens of one character.
    if (std::ranges::count_if(
            token, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }) == 1) {
      vocabulary.tokens.push_back(token);
    }
  }
  for (const char* token : {"12", "123", "1234", "ab", "Ġa", "Ġab", "!Ċ"}) {
    vocabulary.tokens.emplace_back(token);
  }
  vocabulary.types.assign(vocabulary.tokens.size(), kNormal);
  gguf::TestGguf made = with_vocabulary("gpt2", vocabulary);
  made.text("tokenizer.ggml.pre", pre);
  made.texts("tokenizer.ggml.merges", {"1 2", "12 3", "123 4", "a b", "Ġ ab", "! Ċ"});
  return made;
}

std::vector<std::string> pieces(const TextModel& model, std::string_view text) {
  std::vector<std::string> parts;
  const auto ids = model.tokenizer()->encode(text, SpecialTokens::kNone);
  for (const TokenId id : *ids) {
    parts.emplace_back(model.tokenizer()->token_bytes(id));
  }
  return parts;
}

TEST(GgufPreTokenizers, CutAsTheirModelsDo) {
  const auto cut = [](const std::string& pre, std::string_view text) {
    return pieces(*opened(digits(pre)), text);
  };
  EXPECT_THAT(cut("gpt-2", "1234"), ElementsAre("1234"));
  EXPECT_THAT(cut("default", "1234"), ElementsAre("123", "4"));
  EXPECT_THAT(cut("llama-bpe", "1234"), ElementsAre("123", "4"));
  EXPECT_THAT(cut("qwen2", "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(cut("smollm", "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(cut("tekken", "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(cut("gpt-4o", "1234"), ElementsAre("123", "4"));
  EXPECT_THAT(cut("deepseek-llm", "1234"), ElementsAre("1234"));
  EXPECT_THAT(cut("deepseek-coder", "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(cut("llama-bpe", "!\n ab"), ElementsAre("!\n", " ab"));
  EXPECT_THAT(cut("gpt-2", "!\n ab"), ElementsAre("!", "\n", " ab"));
  EXPECT_THAT(cut("deepseek-llm", "!\n ab"), ElementsAre("!", "\n", " ab"));
  // Tekken begins a piece where small letters give way to a large one.
  EXPECT_THAT(cut("tekken", "xab"), ElementsAre("x", "ab"));
  EXPECT_THAT(cut("gpt-4o", "xab"), ElementsAre("x", "ab"));
  EXPECT_THAT(cut("default", "a12"), ElementsAre("a", "12"));
}

TEST(GgufPreTokenizers, LoseNothing) {
  const std::vector<std::string> texts = {
      "",
      "  a  b\t\r\n\r\n 1,234.5 e-7\n",
      "It's they'LL 'twas naïve ÅÄÖ Ωμέγα Привет ქართული",
      "日本語 한국어 ไทย עברית हिन्दी 😀👩‍🚀 ﷽ ǅ ⅷ "
      "５６",
      "{\"a\": [1, null]} <|x|> ==>> /*///*/ __init__",
      std::string("\0\x01\x7f", 3)};
  std::string names = gguf::known_pre_tokenizers() + ", ";
  int count = 0;
  for (std::size_t end = names.find(", "); end != std::string::npos; end = names.find(", ")) {
    const std::string name = names.substr(0, end);
    names.erase(0, end + 2);
    const auto model = opened(digits(name));
    ASSERT_NE(model, nullptr) << name;
    for (const std::string& text : texts) {
      const auto ids = model->tokenizer()->encode(text, SpecialTokens::kNone);
      ASSERT_TRUE(ids) << name;
      EXPECT_EQ(*model->tokenizer()->decode(*ids, ShowSpecial::kYes), text) << name;
    }
    ++count;
  }
  EXPECT_GE(count, 10);
}

/// The golden tokenizer of Llama 2, whose merges make the better tokens the earlier they stand.
gguf::TestGguf sentence_piece() {
  const Json file = Json::parse(golden_tokenizer_json("llama2"));
  const Vocabulary vocabulary = vocabulary_of(file);
  std::map<std::string, float> scores;
  for (const Json& merge : file.at("model").at("merges")) {
    scores.emplace(merge.at(0).get<std::string>() + merge.at(1).get<std::string>(),
                   -static_cast<float>(scores.size()));
  }
  std::vector<float> listed;
  for (const std::string& token : vocabulary.tokens) {
    const auto score = scores.find(token);
    listed.push_back(score != scores.end() ? score->second : -1e6F);
  }
  gguf::TestGguf made = with_vocabulary("llama", vocabulary);
  made.numbers("tokenizer.ggml.scores", gguf::ValueType::kF32, listed);
  made.u32("tokenizer.ggml.unknown_token_id", 0).u32("tokenizer.ggml.bos_token_id", 1);
  return made.u32("tokenizer.ggml.eos_token_id", 2);
}

TEST(GgufSentencePiece, TokensAreThoseOfTheLibrary) {
  const auto model = opened(sentence_piece());
  ASSERT_NE(model, nullptr);
  EXPECT_GT(compare_encodings(*model, "llama2").size(), 100U);
  EXPECT_EQ(model->bos(), 1);
  EXPECT_THAT(model->eos(), ElementsAre(2));
  EXPECT_EQ(model->tokenizer()->encode("a", SpecialTokens::kAdd)->front(), 1);
}

/// Gemma 4's: merges are listed, spaces are no tokens of their own.
TEST(GgufSentencePiece, MergesMayBeListed) {
  const Json file = Json::parse(golden_tokenizer_json("gemma"));
  std::vector<std::string> merges;
  for (const Json& merge : file.at("model").at("merges")) {
    merges.push_back(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  gguf::TestGguf made = with_vocabulary("gemma4", vocabulary_of(file));
  made.texts("tokenizer.ggml.merges", merges).u32("tokenizer.ggml.unknown_token_id", 3);
  const auto model = opened(made);
  ASSERT_NE(model, nullptr);
  EXPECT_GT(compare_encodings(*model, "gemma").size(), 100U);
}

/// tests/golden/make_gguf_reranker.py trained the tokenizer, and has the tokens by llama.cpp.
TEST(GgufUnigram, TokensOfPairsAreLlamaCpps) {
  const auto model = TextModel::open(places::source("tests/golden/gguf/reranker.gguf"));
  ASSERT_TRUE(model) << model.error().message;
  std::ifstream stream(places::source("tests/golden/gguf/reranker.json"));
  const Json golden = Json::parse(stream).at("reranker");
  EXPECT_GE(golden.at("pairs").size(), 6U);
  for (std::size_t i = 0; i < golden.at("pairs").size(); ++i) {
    const Json& pair = golden.at("pairs")[i];
    const auto encoded = (*model)->tokenizer()->encode_texts(
        pair[0].get<std::string>(), pair[1].get<std::string>(), 0);
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_EQ(encoded->tokens, golden.at("ids")[i].get<Ids>()) << pair;
    EXPECT_EQ(encoded->second_text, 0) << "of one type";
  }
}

/// The golden tokenizer of T5's kind, whose texts are composed otherwise by a table.
gguf::TestGguf unigram(const std::vector<std::uint8_t>& table) {
  const Json file = Json::parse(golden_tokenizer_json("unigram"));
  Vocabulary vocabulary;
  std::vector<float> scores;
  for (const Json& piece : file.at("model").at("vocab")) {
    vocabulary.tokens.push_back(piece.at(0).get<std::string>());
    scores.push_back(piece.at(1).get<float>());
  }
  vocabulary.types.assign(vocabulary.tokens.size(), kNormal);
  vocabulary.types[0] = 2;  // Unknown.
  gguf::TestGguf made = with_vocabulary("t5", vocabulary);
  made.flag("tokenizer.ggml.remove_extra_whitespaces", false);
  made.numbers("tokenizer.ggml.precompiled_charsmap", gguf::ValueType::kU8, table);
  return made.numbers("tokenizer.ggml.scores", gguf::ValueType::kF32, scores);
}

TEST(GgufUnigram, TokensAreThoseOfTheLibrary) {
  const auto model = opened(unigram({}));
  ASSERT_NE(model, nullptr);
  std::ifstream stream(places::source("tests/text/goldens/unigram/cases.json"));
  int compared = 0;
  const Json cases = Json::parse(stream);
  for (const Json& one : cases.at("encode")) {
    const auto text = one.at(0).get<std::string>();
    const bool plain =
        std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80U; });
    if (!plain || text.find('<') != std::string::npos) {
      continue;  // The library composes it, or finds tokens of its own.
    }
    EXPECT_EQ(model->tokenizer()->encode(text, SpecialTokens::kNone).value(), one.at(1).get<Ids>())
        << text;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

// Of units that point outside only a text tells, which is refused.
TEST(GgufUnigram, ABrokenTableEndsNothing) {
  const auto model = opened(unigram({4, 0, 0, 0, 255, 255, 255, 255}));
  ASSERT_NE(model, nullptr);
  EXPECT_FALSE(model->tokenizer()->encode("a b", SpecialTokens::kNone));
}

TEST(GgufTextModel, HasItsTemplatesAndEnds) {
  gguf::TestGguf file = byte_level("qwen2", "qwen2");
  file.u32("tokenizer.ggml.eos_token_id", 621).u32("tokenizer.ggml.eot_token_id", 623);
  file.text("tokenizer.chat_template", "{% for m in messages %}<{{ m.content }}>{% endfor %}");
  const auto model = opened(file);
  ASSERT_NE(model, nullptr);
  EXPECT_THAT(model->eos(), ElementsAre(621, 623));
  const Chat chat{.messages = R"([{"role":"user","content":"hi"}])"};
  EXPECT_EQ(model->render(chat).value(), "<hi>");
}

TEST(GgufTextModel, ErrorsNameNoFolder) {
  const TempDirectory directory;
  write_text(directory.path() / "m.gguf", gguf::small_model().bytes());
  const auto model = TextModel::open(directory.path() / "m.gguf");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, testing::StartsWith("m.gguf: key \"tokenizer.ggml.tokens\""));
}

}  // namespace
}  // namespace heddle::text
