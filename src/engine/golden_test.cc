// The decoder against `transformers`: tests/golden/make_goldens.py made the numbers.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/decoder_rig.h"
#include "engine/engine.h"
#include "engine/test_host.h"
#include "ops/bf16.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

/// Largest distance of two sets of logits, each row's relative to its largest expected logit (at
/// least 1).
double distance(const std::vector<float>& got,
                const std::vector<float>& expected,
                std::int64_t vocab) {
  HEDDLE_CHECK(got.size() == expected.size());
  double worst = 0.0;
  for (std::size_t row = 0; row < got.size(); row += static_cast<std::size_t>(vocab)) {
    double scale = 1.0;
    double most = 0.0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(vocab); ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
      most =
          std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
    }
    worst = std::max(worst, most / scale);
  }
  return worst;
}

/// For the test's record: the table of docs/contracts/engine.md is written from it.
std::string in_words(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2e", value);
  return text.data();
}

/// The i-th number that tensor `at` of an image stands for.
float value_of(const LoadedModel& model, std::size_t at, std::int64_t i) {
  const store::ImageTensor& tensor = model.layout.tensors[at];
  const std::byte* data = model.window.base() + tensor.offset;
  switch (tensor.dtype) {
    case spec::DType::kI8: {
      const store::ImageTensor& scales = model.layout.tensors[at + 1];
      const auto* scale = reinterpret_cast<const float*>(model.window.base() + scales.offset);
      return scale[i / tensor.columns] *
             static_cast<float>(reinterpret_cast<const std::int8_t*>(data)[i]);
    }
    case spec::DType::kBf16:
      return ops::from_bf16(reinterpret_cast<const std::uint16_t*>(data)[i]);
    default:
      return reinterpret_cast<const float*>(data)[i];
  }
}

/// Makes the float32 image of `to` that of the very numbers which the image of `from` stands for.
void copy_weights(TestHost& host, const LoadedModel& from, const LoadedModel& to) {
  const std::size_t page_bytes = host.device().properties().page_bytes;
  for (std::size_t at = 0; at < from.layout.tensors.size(); ++at) {
    const store::ImageTensor& source = from.layout.tensors[at];
    const auto target = std::find_if(
        to.layout.tensors.begin(), to.layout.tensors.end(), [&](const store::ImageTensor& tensor) {
          return tensor.role == source.role && tensor.layer == source.layer;
        });
    if (target == to.layout.tensors.end()) {
      continue;  // Scales.
    }
    for (std::int64_t i = 0; i < source.rows * source.columns; ++i) {
      const float value = value_of(from, at, i);
      const std::uint64_t place = target->offset + static_cast<std::uint64_t>(i) * sizeof(value);
      std::memcpy(host.device().page_address(to.pages[place / page_bytes]) + place % page_bytes,
                  &value,
                  sizeof(value));
    }
  }
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  std::vector<float> logits(spec::DType dtype) {
    return logits(host_.load(golden_directory() / GetParam(), dtype));
  }

  std::vector<float> logits(const LoadedModel& model) {
    DecoderRig rig(host_, model, all_layers(model.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    rig.run(golden_.input_ids, 0, sequence, all_layers(model.spec), hidden);
    vocab_ = model.spec.vocab;
    return rig.logits(hidden);
  }

  TestHost host_{};
  Golden golden_ = read_golden(GetParam());
  std::int64_t vocab_ = 0;
};

TEST_P(GoldenTest, LogitsInFloat32) {
  const auto got = logits(spec::DType::kF32);
  const double found = distance(got, golden_.logits_f32, vocab_);
  RecordProperty("distance", in_words(found));
  EXPECT_LE(found, 1e-5);
}

/// How many times as far a model may be off: where norms are of what layers give alone, or heads of
/// linear attention, or of values, they make what was rounded in small numbers as large as the
/// rest.
double leeway(const spec::ModelSpec& model) {
  return model.norms == spec::Norms::kAfter || spec::has_states(model) ? 2.5
         : model.value_norm                                            ? 1.2
                                                                       : 1.0;
}

/// Bounds in bfloat16, by what the checkpoint holds: the table of docs/contracts/engine.md. Weights
/// stored in bfloat16 or float16 are exact or nearly so; others are rounded when they are loaded.
double bf16_bound(const spec::ModelSpec& model) {
  return leeway(model) * (model.stored_dtype == spec::DType::kF32 ? 1.5e-2 : 8e-3);
}

TEST_P(GoldenTest, LogitsInBfloat16) {
  const auto stored = store::Checkpoint::open(golden_directory() / GetParam())->config.model;
  const auto got = logits(spec::DType::kBf16);
  const double found = distance(got, golden_.logits_f32, vocab_);
  RecordProperty("distance", in_words(found));
  EXPECT_LE(found, bf16_bound(stored));
  if (!golden_.logits_bf16.empty()) {
    // Keeping the residual stream in float32 is closer to the truth than transformers' own
    // bfloat16.
    std::vector<float> theirs;
    for (const std::uint16_t bits : golden_.logits_bf16) {
      theirs.push_back(ops::from_bf16(bits));
    }
    EXPECT_LT(found, distance(theirs, golden_.logits_f32, vocab_));
  }
}

/// Largest difference of the log probabilities of a token that is at least e^-5 times as likely as
/// the likeliest.
double likely_difference(const std::vector<float>& got,
                         const std::vector<float>& expected,
                         std::int64_t vocab) {
  HEDDLE_CHECK(got.size() == expected.size());
  double worst = 0.0;
  const auto width = static_cast<std::size_t>(vocab);
  const auto log_sum = [width](const float* logits) {
    const double most = static_cast<double>(*std::max_element(logits, logits + width));
    double sum = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      sum += std::exp(static_cast<double>(logits[i]) - most);
    }
    return most + std::log(sum);
  };
  for (std::size_t row = 0; row < got.size(); row += width) {
    const double most = static_cast<double>(
        *std::max_element(expected.data() + row, expected.data() + row + width));
    const double shift = log_sum(got.data() + row) - log_sum(expected.data() + row);
    for (std::size_t i = row; i < row + width; ++i) {
      const auto logit = static_cast<double>(expected[i]);
      if (logit >= most - 5) {
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - logit - shift));
      }
    }
  }
  return worst;
}

// What KV in codes costs, beside the same weights over KV in bfloat16. An E4M3 has three bits
// behind the first, an integer up to six. Where a token takes some of many experts, it is more.
TEST_P(GoldenTest, LogProbabilitiesOverKvInCodesAreNearThoseOverBfloat16) {
  LoadedModel model = host_.load(golden_directory() / GetParam(), spec::DType::kBf16);
  const std::vector<float> wide = logits(model);
  const double of_fp8 = model.spec.experts.count > 0 ? 4.5 : 3.0;
  for (const auto& [kv, far] :
       {std::pair(spec::KvType::kI8, 1.0), std::pair(spec::KvType::kF8, of_fp8)}) {
    model.spec.kv = kv;
    const std::vector<float> narrow = logits(model);
    EXPECT_NE(narrow, wide);
    const std::string name(spec::dtype_name(spec::kv_dtype(kv, spec::DType::kBf16)));
    RecordProperty(name + "_distance", in_words(distance(narrow, golden_.logits_f32, vocab_)));
    RecordProperty(name + "_difference", in_words(likely_difference(narrow, wide, vocab_)));
    EXPECT_LE(distance(narrow, golden_.logits_f32, vocab_), far * leeway(model.spec) * 2e-2);
    EXPECT_LE(likely_difference(narrow, wide, vocab_), far * leeway(model.spec) * 0.1);
  }
}

TEST_P(GoldenTest, LogitsInInt8AreThoseOfItsWeights) {
  const LoadedModel int8 = host_.load(golden_directory() / GetParam(), spec::DType::kI8);
  const LoadedModel float32 = host_.load(golden_directory() / GetParam(), spec::DType::kF32);
  copy_weights(host_, int8, float32);
  const double found = distance(logits(int8), logits(float32), vocab_);
  RecordProperty("distance", in_words(found));
  EXPECT_LE(found, 8e-3 * leeway(int8.spec));
  EXPECT_LT(int8.layout.bytes, float32.layout.bytes);
}

/// What rounding the weights themselves does to these tiny models: for the record, and so that it
/// stays what it is.
TEST_P(GoldenTest, LogitsInInt8AreNearTheModels) {
  const LoadedModel model = host_.load(golden_directory() / GetParam(), spec::DType::kI8);
  const double found = distance(logits(model), golden_.logits_f32, vocab_);
  RecordProperty("distance", in_words(found));
  EXPECT_LE(found, 3e-2 * leeway(model.spec));
}

/// Experts as their file has them: MXFP4, of whose products inputs are rounded to eight bits.
TEST(GoldenBlocks, ExpertsInMxfp4AreNearTheModels) {
  TestHost host;
  const std::string name = "gpt-oss-mxfp4";
  const Golden golden = read_golden(name);
  const LoadedModel model = host.load(golden_directory() / name, spec::DType::kStored);
  const auto blocks =
      std::ranges::count(model.layout.tensors, spec::DType::kMxfp4, &store::ImageTensor::dtype);
  EXPECT_EQ(blocks, 2 * model.spec.layers);
  DecoderRig rig(host, model, all_layers(model.spec));
  SequenceKv sequence = rig.kv().make_sequence();
  std::vector<float> hidden;
  rig.run(golden.input_ids, 0, sequence, all_layers(model.spec), hidden);
  const double found = distance(rig.logits(hidden), golden.logits_f32, model.spec.vocab);
  testing::Test::RecordProperty("distance", in_words(found));
  EXPECT_LE(found, 1.5e-2);
}

TEST_P(GoldenTest, GreedyContinuationInFloat32) {
  constexpr std::size_t kPrompt = 16;
  const LoadedModel model = host_.load(golden_directory() / GetParam(), spec::DType::kF32);
  const auto engine = Engine::create(host_.device(), host_.pool()).value();
  constexpr ModelId kModel{7};
  constexpr SequenceId kSequence{1};
  ASSERT_TRUE(engine->add_model(kModel, model.spec, model.layout, model.window.base(), kKvLease));
  engine->set_image_ready(kModel, model.layout.bytes);
  ASSERT_TRUE(engine->add_sequence(
      {.id = kSequence,
       .model = kModel,
       .tokens = {golden_.input_ids.begin(), golden_.input_ids.begin() + kPrompt},
       .prompt_tokens = kPrompt,
       .params = {.temperature = 0.0F,
                  .max_tokens = static_cast<std::int64_t>(golden_.greedy.size())}}));
  std::vector<TokenId> tokens;
  std::int64_t pending = kPrompt;
  auto finish = spec::FinishReason::kNone;
  while (finish == spec::FinishReason::kNone) {
    const policy::StepPlan plan{
        .batches = {{.model = kModel, .slices = {{.sequence = kSequence, .tokens = pending}}}}};
    const auto outcome = engine->run(plan);
    ASSERT_TRUE(outcome);
    ASSERT_EQ(outcome->results.size(), 1U);
    tokens.push_back(outcome->results[0].token.value());
    finish = outcome->results[0].finish;
    pending = 1;
  }
  EXPECT_EQ(finish, spec::FinishReason::kLength);
  EXPECT_EQ(tokens, golden_.greedy);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         GoldenTest,
                         testing::ValuesIn(golden_cases()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heddle::engine
