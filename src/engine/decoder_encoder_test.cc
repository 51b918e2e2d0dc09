// Encoders, by the engine, against `transformers`: tests/golden/make_encoder_goldens.py made the
// numbers.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/gguf_golden.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr ModelId kEncoder{3};
constexpr std::int64_t kLongest = 32;  ///< Of the model "bert" [tokens].

struct EncoderGolden {
  std::vector<TokenId> input_ids{};
  std::int64_t second_text = 0;
  std::vector<float> hidden{};  ///< [tokens, hidden]
  std::vector<float> score{};
};

EncoderGolden read_encoder_golden(const std::string& name) {
  const auto path = golden_directory() / "encoders" / name / "golden.safetensors";
  const auto tensors = store::TensorSet::open_file(path);
  HEDDLE_CHECK(tensors.has_value());
  const auto read = [&](const char* key, auto& values) {
    if (const auto* entry = tensors->find(key); entry != nullptr) {
      values.resize(entry->tensor.bytes / sizeof(values[0]));
      HEDDLE_CHECK(tensors->file_of(*entry)
                       .read(entry->tensor.offset, std::as_writable_bytes(std::span(values)))
                       .has_value());
    }
  };
  EncoderGolden golden;
  std::vector<std::int32_t> second;
  read("input_ids", golden.input_ids);
  read("second_text", second);
  read("hidden_f32", golden.hidden);
  read("score_f32", golden.score);
  golden.second_text = second.at(0);
  return golden;
}

/// An engine that has one encoder: of the golden ones, or of an absolute path.
class EncoderEngine {
 public:
  EncoderEngine(const std::string& name,
                spec::DType dtype,
                EngineOptions options = {},
                std::uint64_t pages = 128,
                std::size_t page_bytes = std::size_t{64} << 10U)
      : host_(pages, page_bytes),
        model_(host_.load(golden_directory() / "encoders" / name, dtype)),
        engine_(Engine::create(host_.device(), host_.pool(), options).value()) {
    HEDDLE_CHECK(
        engine_->add_model(kEncoder, model_.spec, model_.layout, model_.window.base(), kKvLease)
            .has_value());
    engine_->set_image_ready(kEncoder, model_.layout.bytes);
  }

  static SequenceStart text(std::uint64_t id,
                            std::vector<TokenId> tokens,
                            spec::Pooling pooling,
                            std::int64_t second_text = 0) {
    const auto size = static_cast<std::int64_t>(tokens.size());
    return {
        .id = SequenceId{id},
        .model = kEncoder,
        .tokens = std::move(tokens),
        .prompt_tokens = size,
        .params = {
            .max_tokens = 1, .pooling = pooling, .in_one_pass = true, .second_text = second_text}};
  }

  /// What stands for each text, all of them being one batch.
  std::vector<std::vector<float>> pool(const std::vector<SequenceStart>& texts) {
    policy::StepPlan plan{.batches = {{.model = kEncoder}}};
    for (const SequenceStart& text : texts) {
      HEDDLE_CHECK(engine_->add_sequence(text).has_value());
      plan.batches[0].slices.push_back({.sequence = text.id, .tokens = text.prompt_tokens});
    }
    const auto outcome = engine_->run(plan);
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == texts.size());
    std::vector<std::vector<float>> pooled;
    for (const SliceResult& result : outcome->results) {
      EXPECT_EQ(result.finish, spec::FinishReason::kStop);
      pooled.push_back(result.details.embedding);
      engine_->remove_sequence(result.sequence);
    }
    return pooled;
  }

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] const spec::ModelSpec& spec() const { return model_.spec; }

 private:
  TestHost host_;
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
};

/// The largest difference, over the largest number expected, or 1.
double off_by(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double scale = 1.0;
  double most = 0.0;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
    most = std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
  }
  return most / scale;
}

class EncoderGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  /// How far first and last hidden state and the mean of all are off; of a model that scores, its
  /// score.
  double distance(spec::DType dtype) {
    EncoderEngine rig(GetParam(), dtype);
    const EncoderGolden golden = read_encoder_golden(GetParam());
    const auto width = static_cast<std::size_t>(rig.spec().hidden);
    const auto of = [&](std::uint64_t id, spec::Pooling pooling) {
      return EncoderEngine::text(id, golden.input_ids, pooling, golden.second_text);
    };
    const auto got = rig.pool(
        {of(1, spec::Pooling::kFirst), of(2, spec::Pooling::kLast), of(3, spec::Pooling::kMean)});
    if (rig.spec().encoder.scores) {
      return off_by(got[0], golden.score);
    }
    const std::vector<float>& hidden = golden.hidden;
    const auto width_at = static_cast<std::ptrdiff_t>(width);
    const std::vector<float> first(hidden.begin(), hidden.begin() + width_at);
    const std::vector<float> last(hidden.end() - width_at, hidden.end());
    std::vector<float> mean(width);
    const std::size_t tokens = hidden.size() / width;
    for (std::size_t i = 0; i < width; ++i) {
      double sum = 0.0;
      for (std::size_t t = 0; t < tokens; ++t) {
        sum += static_cast<double>(hidden[t * width + i]);
      }
      mean[i] = static_cast<float>(sum / static_cast<double>(tokens));
    }
    return std::max({off_by(got[0], first), off_by(got[1], last), off_by(got[2], mean)});
  }
};

// Bounds: the table of docs/contracts/engine.md.
TEST_P(EncoderGoldenTest, HiddenStatesInFloat32) {
  const double found = distance(spec::DType::kF32);
  RecordProperty("distance", std::to_string(found * 1e6) + "e-6");
  EXPECT_LE(found, 1e-5);
}

TEST_P(EncoderGoldenTest, HiddenStatesInBfloat16) {
  const double found = distance(spec::DType::kBf16);
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 1.5e-2);
}

TEST_P(EncoderGoldenTest, HiddenStatesInInt8) {
  const double found = distance(spec::DType::kI8);
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Encoders,
                         EncoderGoldenTest,
                         testing::Values("bert",
                                         "bert-bf16",
                                         "roberta",
                                         "xlm-roberta-padding",
                                         "bert-score",
                                         "roberta-score"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// tests/golden/make_gguf_encoder.py wrote the file and what llama.cpp says of it.
class EncoderFileTest : public testing::Test {
 protected:
  /// How far vectors of length 1 are off, at most.
  static double distance(spec::DType dtype, const char* of) {
    const std::filesystem::path folder = golden_directory() / "gguf";
    const std::string text = read_text(folder / "bert.json", 1U << 20U).value();
    const spec::Json json = spec::parse_json(text, "bert.json").value();
    const auto& wanted = *json.find(of)->as<spec::Json::Array>();
    std::vector<SequenceStart> texts;
    for (const spec::Json& ids : *json.find("ids")->as<spec::Json::Array>()) {
      std::vector<TokenId> tokens;
      for (const spec::Json& id : *ids.as<spec::Json::Array>()) {
        tokens.push_back(static_cast<TokenId>(*id.as<std::int64_t>()));
      }
      texts.push_back(
          EncoderEngine::text(texts.size() + 1, std::move(tokens), spec::Pooling::kMean));
    }
    EncoderEngine rig((folder / "bert.gguf").string(), dtype);
    const std::vector<std::vector<float>> got = rig.pool(texts);
    double most = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, apart(got[i], *wanted[i].as<spec::Json::Array>()));
    }
    return most;
  }

 private:
  static double apart(const std::vector<float>& got, const spec::Json::Array& wanted) {
    HEDDLE_CHECK(got.size() == wanted.size());
    double square = 0.0;
    for (const float x : got) {
      square += static_cast<double>(x) * static_cast<double>(x);
    }
    double most = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double found = static_cast<double>(got[i]) / std::sqrt(square);
      most = std::max(most, std::abs(found - number_of(wanted[i])));
    }
    return most;
  }
};

// llama.cpp looks GELU up in a table of float16.
TEST_F(EncoderFileTest, NumbersSayWhatLlamaCppSays) {
  const double found = distance(spec::DType::kF32, "of_numbers");
  RecordProperty("distance", std::to_string(found * 1e6) + "e-6");
  EXPECT_LE(found, 2e-4);
}

TEST_F(EncoderFileTest, BlocksSayNearlyWhatLlamaCppSays) {
  const double found = distance(spec::DType::kStored, "of_blocks");
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 1e-2);
}

/// tests/golden/make_gguf_reranker.py wrote the files and what llama.cpp says of them.
class RerankerFileTest : public testing::TestWithParam<const char*> {
 protected:
  /// How far scores, before the sigmoid, are off, at most.
  static double distance(spec::DType dtype, const char* of) {
    const std::filesystem::path folder = golden_directory() / "gguf";
    const std::string text = read_text(folder / "reranker.json", 1U << 20U).value();
    const spec::Json all = spec::parse_json(text, "reranker.json").value();
    const spec::Json& json = *all.find(GetParam());
    EncoderEngine rig((folder / (std::string(GetParam()) + ".gguf")).string(), dtype);
    std::vector<SequenceStart> texts;
    for (const spec::Json& ids : *json.find("ids")->as<spec::Json::Array>()) {
      std::vector<TokenId> tokens;
      for (const spec::Json& id : *ids.as<spec::Json::Array>()) {
        tokens.push_back(static_cast<TokenId>(*id.as<std::int64_t>()));
      }
      texts.push_back(
          EncoderEngine::text(texts.size() + 1, std::move(tokens), spec::Pooling::kFirst));
    }
    const std::vector<std::vector<float>> got = rig.pool(texts);
    const auto& wanted = *json.find(of)->as<spec::Json::Array>();
    double most = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].size(), 1U);
      most = std::max(most, std::abs(static_cast<double>(got[i][0]) - number_of(wanted[i])));
    }
    return most;
  }
};

// Its GELU comes from a table of float16.
TEST_P(RerankerFileTest, NumbersScoreAsLlamaCppDoes) {
  const double found = distance(spec::DType::kF32, "of_numbers");
  RecordProperty("distance", std::to_string(found * 1e6) + "e-6");
  EXPECT_LE(found, 3e-3);
}

TEST_P(RerankerFileTest, BlocksScoreNearlyAsLlamaCppDoes) {
  const double found = distance(spec::DType::kStored, "of_blocks");
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         RerankerFileTest,
                         testing::Values("reranker", "bare_reranker"),
                         [](const auto& info) { return std::string(info.param); });

/// Texts of several lengths out of the golden one, from one token to all.
std::vector<SequenceStart> some_texts(const std::vector<TokenId>& ids) {
  std::vector<SequenceStart> texts;
  const std::vector<spec::Pooling> ways{
      spec::Pooling::kMean, spec::Pooling::kFirst, spec::Pooling::kLast};
  for (const std::ptrdiff_t length : {1, 5, 16, 17, 26}) {
    const auto id = static_cast<std::uint64_t>(length);
    texts.push_back(EncoderEngine::text(id,
                                        {ids.begin(), ids.begin() + length},
                                        ways[texts.size() % ways.size()],
                                        length > 8 ? 7 : 0));
  }
  return texts;
}

TEST(EncoderTest, ATextHasTheSameBitsInEveryBatchAndOnEveryPage) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    const auto texts = some_texts(read_encoder_golden("bert").input_ids);
    EncoderEngine rig("bert", dtype);
    const auto together = rig.pool(texts);
    std::vector<SequenceStart> reversed(texts.rbegin(), texts.rend());
    auto backwards = rig.pool(reversed);
    std::ranges::reverse(backwards);
    EXPECT_EQ(backwards, together);
    EncoderEngine small("bert", dtype, {}, 4096, std::size_t{4} << 10U);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(small.pool({texts[i]})[0], together[i]) << "text " << i;
    }
  }
}

TEST(EncoderTest, EveryTokenAttendsToLaterOnes) {
  const EncoderGolden golden = read_encoder_golden("bert");
  EncoderEngine rig("bert", spec::DType::kF32);
  std::vector<TokenId> changed = golden.input_ids;
  changed.back() = changed.back() == 7 ? 8 : 7;
  const auto pooled = rig.pool({EncoderEngine::text(1, golden.input_ids, spec::Pooling::kFirst),
                                EncoderEngine::text(2, changed, spec::Pooling::kFirst)});
  EXPECT_NE(pooled[0], pooled[1]);
}

TEST(EncoderTest, TheSecondTextIsOfAnotherType) {
  const EncoderGolden golden = read_encoder_golden("bert-score");
  EncoderEngine rig("bert-score", spec::DType::kF32);
  const auto pooled = rig.pool({EncoderEngine::text(1, golden.input_ids, spec::Pooling::kFirst, 11),
                                EncoderEngine::text(2, golden.input_ids, spec::Pooling::kFirst)});
  ASSERT_EQ(pooled[0].size(), 1U);
  EXPECT_NE(pooled[0], pooled[1]);
}

TEST(EncoderTest, ATextMayFillAllPositionsAndMoreThanAStepOfOthers) {
  EncoderEngine rig("bert", spec::DType::kF32, {.max_batch_tokens = 8});
  EXPECT_EQ(rig.spec().max_position, kLongest);
  const std::vector<TokenId> longest(kLongest, 9);
  EncoderEngine wide("bert", spec::DType::kF32);
  const auto text = EncoderEngine::text(1, longest, spec::Pooling::kMean);
  EXPECT_EQ(rig.pool({text}), wide.pool({text}));
  const std::vector<TokenId> longer(kLongest + 1, 9);
  const auto refused =
      rig.engine().add_sequence(EncoderEngine::text(2, longer, spec::Pooling::kMean));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
}

TEST(EncoderTest, NothingIsGeneratedOrRunInParts) {
  EncoderEngine rig("bert", spec::DType::kF32);
  SequenceStart text = EncoderEngine::text(1, {5, 6, 7}, spec::Pooling::kNone);
  EXPECT_FALSE(rig.engine().add_sequence(text));
  text.params.pooling = spec::Pooling::kMean;
  text.params.in_one_pass = false;
  EXPECT_FALSE(rig.engine().add_sequence(text));
  text.params.in_one_pass = true;
  text.tokens.push_back(8);
  text.params.max_tokens = 2;
  EXPECT_FALSE(rig.engine().add_sequence(text)) << "a token of an answer";
}

TEST(EncoderTest, KeepsNoKeysAndValues) {
  EncoderEngine rig("bert", spec::DType::kF32, {.prefix_cache = true});
  const std::vector<TokenId> tokens(kLongest, 9);
  ASSERT_TRUE(rig.engine().add_sequence(EncoderEngine::text(1, tokens, spec::Pooling::kMean)));
  EXPECT_EQ(rig.engine().take_prefix(SequenceId{1}), 0);
  ASSERT_TRUE(rig.engine().run(
      {.batches = {
           {.model = kEncoder, .slices = {{.sequence = SequenceId{1}, .tokens = kLongest}}}}}));
  rig.engine().remove_sequence(SequenceId{1});
  EXPECT_EQ(rig.engine().kv_pages(kEncoder), 0);
  EXPECT_EQ(rig.engine().cached_pages(), 0);
}

}  // namespace
}  // namespace heddle::engine
