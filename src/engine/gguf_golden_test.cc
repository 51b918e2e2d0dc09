// Models of GGUF files against llama.cpp: tests/golden/make_gguf_models.py made files and numbers.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
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
  std::vector<Said> said{};
};

double number_of(const spec::Json& json) {
  const auto* real = json.as<double>();
  return real != nullptr ? *real : static_cast<double>(*json.as<std::int64_t>());
}

FileGolden read_file_golden(const std::filesystem::path& path) {
  const std::string text = read_text(path, 1U << 20U).value();
  const spec::Json json = spec::parse_json(text, path.string()).value();
  FileGolden golden;
  for (const spec::Json& id : *json.find("ids")->as<spec::Json::Array>()) {
    golden.ids.push_back(static_cast<TokenId>(*id.as<std::int64_t>()));
  }
  const auto& prefixes = *json.find("prefixes")->as<spec::Json::Array>();
  const auto& likeliest = *json.find("likeliest")->as<spec::Json::Array>();
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    Said& said = golden.said.emplace_back();
    said.prefix = static_cast<std::size_t>(*prefixes[i].as<std::int64_t>());
    for (const spec::Json& entry : *likeliest[i].as<spec::Json::Array>()) {
      const auto& pair = *entry.as<spec::Json::Array>();
      said.likeliest.emplace_back(static_cast<std::size_t>(number_of(pair[0])), number_of(pair[1]));
    }
  }
  return golden;
}

std::filesystem::path file_goldens() {
  const char* const other = std::getenv("HEDDLE_GGUF_GOLDENS");
  return other != nullptr ? std::filesystem::path(other) : golden_directory() / "gguf";
}

class GgufModelGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  /// The largest distance of log probabilities of likely tokens: those that llama.cpp finds no less
  /// than e^-5 times as likely as the first.
  double distance(spec::DType dtype) {
    const FileGolden golden =
        read_file_golden(file_goldens() / (GetParam() + std::string(".json")));
    const LoadedModel model =
        host_.load(file_goldens() / (GetParam() + std::string(".gguf")), dtype);
    DecoderRig rig(host_, model, all_layers(model.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    rig.run(golden.ids, 0, sequence, all_layers(model.spec), hidden);
    const std::vector<float> logits = rig.logits(hidden);
    const auto vocab = static_cast<std::size_t>(model.spec.vocab);
    double worst = 0;
    for (const Said& said : golden.said) {
      const auto row = std::span(logits).subspan((said.prefix - 1) * vocab, vocab);
      double sum = 0;
      for (const float logit : row) {
        sum += std::exp(static_cast<double>(logit));
      }
      for (const auto& [token, wanted] : said.likeliest) {
        if (wanted >= said.likeliest.front().second - 5) {
          worst =
              std::max(worst, std::abs(static_cast<double>(row[token]) - std::log(sum) - wanted));
        }
      }
    }
    return worst;
  }

  TestHost host_{};
};

// llama.cpp rounds inputs of products to eight bits too, in blocks of 256 for some types.
TEST_P(GgufModelGoldenTest, BlocksSayWhatLlamaCppSays) {
  const double found = distance(spec::DType::kStored);
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 0.15);
}

TEST_P(GgufModelGoldenTest, TheirNumbersInFloat32SayWhatLlamaCppSays) {
  const double found = distance(spec::DType::kF32);
  RecordProperty("distance", std::to_string(found));
  EXPECT_LE(found, 0.15);
}

INSTANTIATE_TEST_SUITE_P(
    Files,
    GgufModelGoldenTest,
    testing::Values("llama", "mixtral", "qwen2moe", "qwen3moe", "gemma2", "gemma3"));

}  // namespace
}  // namespace heddle::engine
