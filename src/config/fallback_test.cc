#include "config/fallback.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "config/config.h"
#include "gguf/test_gguf.h"

#include <sys/stat.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;

/// A folder with a file that is served and one that is not, and one with llama-server in it.
class FallbackTest : public testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_.path() / "known.gguf",
               gguf::small_model().text("tokenizer.ggml.model", "gpt2").bytes());
    write_text(folder_.path() / "other.gguf",
               gguf::small_model("mamba").text("tokenizer.ggml.model", "gpt2").bytes());
    std::filesystem::create_directory(folder_.path() / "bin");
    server_ = folder_.path() / "bin/llama-server";
    write_text(server_, "#!/bin/sh\n");
    chmod(server_.c_str(), 0755);
  }

  [[nodiscard]] Result<Config> parsed(const std::string& models, bool installed = true) const {
    const std::string path = installed ? (folder_.path() / "bin").string() : "/nowhere";
    const Environment environment = [&path](const std::string& name) {
      return name == "PATH" ? std::optional(path) : std::nullopt;
    };
    const std::string text =
        "devices: [{name: cpu0, kind: cpu, memory: 256MiB, page: 64KiB}]\nmodels: {" + models + "}";
    return parse_config(text, (folder_.path() / "heddle.yaml").string(), environment, Machine{});
  }

  TempDirectory folder_{};
  std::filesystem::path server_{};
};

TEST_F(FallbackTest, AnEngineServesWhatIsNotBuiltIn) {
  const Result<Config> config =
      parsed("known: {path: known.gguf}, other: {path: other.gguf, context: 512}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->models.at(0).engine);
  const std::optional<EngineConfig>& engine = config->models.at(1).engine;
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->kind, spec::EngineKind::kLlamaServer);
  EXPECT_EQ(engine->device, "cpu0");
  EXPECT_GT(engine->upstream.port, 0);
  EXPECT_THAT(
      engine->command,
      IsSupersetOf({std::string("llama-server"),
                    std::filesystem::weakly_canonical(folder_.path() / "other.gguf").string(),
                    std::string("-c"),
                    std::string("512")}));
  const auto weights = std::filesystem::file_size(folder_.path() / "other.gguf");
  const std::uint64_t kv = 2ULL * (2 * (4 + 4) * 2) * 512;  // Layers, heads of keys and values.
  const std::uint64_t logits = 8ULL * 512 * 4;
  EXPECT_EQ(engine->memory, weights + kv + logits + (64U << 20U));
  EXPECT_THAT(config->warnings,
              ElementsAre(testing::AllOf(HasSubstr("models.other: " + server_.string()),
                                         HasSubstr("\"mamba\""))));
}

TEST_F(FallbackTest, WithoutOneTheModelStaysAsItIs) {
  const Result<Config> config = parsed("other: {path: other.gguf}", false);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->models.at(0).engine);
  EXPECT_THAT(config->warnings, IsEmpty());
}

TEST_F(FallbackTest, WhatOnlyOursCanDoIsNotGivenAway) {
  for (const std::string key : {"dtype: bfloat16", "tool_parser: hermes", "tensor_parallel: 1"}) {
    const Result<Config> config = parsed("other: {path: other.gguf, " + key + "}");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_FALSE(config->models.at(0).engine) << key;
  }
}

TEST_F(FallbackTest, AFileThatIsNotThereIsNotLookedAt) {
  const Result<Config> config = parsed("other: {path: none.gguf}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->models.at(0).engine);
}

TEST_F(FallbackTest, FindsProgramsAsAShellDoes) {
  const std::string path = "/nowhere:" + (folder_.path() / "bin").string();
  const Environment environment = [&path](const std::string&) { return std::optional(path); };
  EXPECT_EQ(find_program("llama-server", environment), server_.string());
  EXPECT_EQ(find_program(server_.string(), environment), server_.string());
  EXPECT_EQ(find_program("nothing-of-the-kind", environment), "");
}

}  // namespace
}  // namespace heddle::config
