// Models of GGUF files against llama.cpp: tests/golden/make_gguf_models.py made files and numbers.

#include "engine/gguf_golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/decoder_rig.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

class GgufModelGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  /// The largest distance of log probabilities of likely tokens: those that llama.cpp finds no less
  /// than e^-5 times as likely as the first.
  double distance(spec::DType dtype, std::vector<Said> FileGolden::* of) {
    const std::filesystem::path path = golden_directory() / "gguf" / GetParam();
    const FileGolden golden = read_file_golden(path.string() + ".json");
    const LoadedModel model = host_.load(path.string() + ".gguf", dtype);
    DecoderRig rig(host_, model, all_layers(model.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    rig.run(golden.ids, 0, sequence, all_layers(model.spec), hidden);
    const std::vector<float> logits = rig.logits(hidden);
    const auto vocab = static_cast<std::size_t>(model.spec.vocab);
    double worst = 0;
    for (const Said& said : golden.*of) {
      const auto row = std::span(logits).subspan((said.prefix - 1) * vocab, vocab);
      double sum = 0;
      for (const float logit : row) {
        sum += std::exp(static_cast<double>(logit));
      }
      for (const auto& [token, wanted] : said.likeliest) {
        if (wanted >= said.likeliest.front().second - 5) {
          const double found = static_cast<double>(row[token]) - std::log(sum);
          worst = std::max(worst, std::abs(found - wanted));
        }
      }
    }
    return worst;
  }

  TestHost host_{};
};

// llama.cpp rounds inputs of products to eight bits, in blocks of 256 where weights are; heddle
// likewise, in blocks of 32.
TEST_P(GgufModelGoldenTest, BlocksSayNearlyWhatLlamaCppSays) {
  const double found = distance(spec::DType::kStored, &FileGolden::of_blocks);
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 0.5);
}

// Its GELU comes from a table of float16.
TEST_P(GgufModelGoldenTest, TheirNumbersSayWhatLlamaCppSays) {
  const bool gemma = std::string_view(GetParam()).starts_with("gemma");
  const double found = distance(spec::DType::kF32, &FileGolden::of_numbers);
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, gemma ? 5e-3 : 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         GgufModelGoldenTest,
                         testing::Values("llama",
                                         "mixtral",
                                         "qwen2moe",
                                         "qwen3moe",
                                         "gemma2",
                                         "gemma3",
                                         "granite",
                                         "olmo2",
                                         "smollm3",
                                         "phi3",
                                         "phi3_long",
                                         "qwen35",
                                         "qwen35moe",
                                         "qwen3next",
                                         "qwen3next_old",
                                         "gemma4",
                                         "gemma4_moe",
                                         "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::engine
