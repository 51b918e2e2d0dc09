// Models of GGUF files against llama.cpp: tests/golden/make_gguf_models.py made files and numbers.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/decoder_rig.h"
#include "engine/test_host.h"
#include "spec/json.h"

namespace heddle::engine {
namespace {

/// What llama.cpp says of the next token after a prefix: the likeliest ones.
struct Said {
  std::size_t prefix = 0;
  std::vector<std::pair<std::size_t, double>> likeliest{};  ///< Token, log probability.
};

struct FileGolden {
  std::vector<TokenId> ids{};
  std::vector<Said> of_blocks{};   ///< Of the file as it is, where it rounds inputs of products.
  std::vector<Said> of_numbers{};  ///< Of the same numbers as float32.
};

double number_of(const spec::Json& json) {
  const auto* real = json.as<double>();
  return real != nullptr ? *real : static_cast<double>(*json.as<std::int64_t>());
}

std::vector<Said> read_said(const spec::Json& json, const char* name) {
  const auto& prefixes = *json.find("prefixes")->as<spec::Json::Array>();
  const auto& likeliest = *json.find(name)->as<spec::Json::Array>();
  std::vector<Said> all;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    Said& said = all.emplace_back();
    said.prefix = static_cast<std::size_t>(*prefixes[i].as<std::int64_t>());
    for (const spec::Json& entry : *likeliest[i].as<spec::Json::Array>()) {
      const auto& pair = *entry.as<spec::Json::Array>();
      said.likeliest.emplace_back(static_cast<std::size_t>(number_of(pair[0])), number_of(pair[1]));
    }
  }
  return all;
}

FileGolden read_file_golden(const std::filesystem::path& path) {
  const std::string text = read_text(path, 1U << 20U).value();
  const spec::Json json = spec::parse_json(text, path.string()).value();
  FileGolden golden{.of_blocks = read_said(json, "of_blocks"),
                    .of_numbers = read_said(json, "of_numbers")};
  for (const spec::Json& id : *json.find("ids")->as<spec::Json::Array>()) {
    golden.ids.push_back(static_cast<TokenId>(*id.as<std::int64_t>()));
  }
  return golden;
}

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
                                         "qwen35",
                                         "qwen35moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::engine
