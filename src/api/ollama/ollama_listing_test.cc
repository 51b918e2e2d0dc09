#include "api/ollama/ollama_listing.h"

#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

OllamaModelObject qwen() {
  return {.name = "qwen",
          .digest = "ab12",
          .size = 7,
          .modified = 5'000'000'000,
          .format = "gguf",
          .family = "qwen3",
          .expires = 6'000'000'000,
          .size_vram = 3,
          .context = 64};
}

TEST(OllamaListing, NamesHaveATag) {
  EXPECT_EQ(ollama_name("adder"), "adder:latest");
  EXPECT_EQ(ollama_name("org/name:8b"), "org/name:8b");
  EXPECT_EQ(ollama_name("host:80/name"), "host:80/name:latest");
}

TEST(OllamaListing, ModelsAreListed) {
  const json details = json::parse(R"({"parent_model":"","format":"gguf","family":"qwen3",
      "families":["qwen3"],"parameter_size":"","quantization_level":""})");
  const json tag = json::parse(ollama_tags_json({qwen()}))["models"][0];
  EXPECT_EQ(tag["name"], "qwen:latest");
  EXPECT_EQ(tag["model"], "qwen:latest");
  EXPECT_EQ(tag["size"], 7);
  EXPECT_EQ(tag["digest"], "ab12");
  EXPECT_EQ(tag["modified_at"], "1970-01-01T00:00:05Z");
  EXPECT_EQ(tag["details"], details);
  const json running = json::parse(ollama_running_json({qwen()}))["models"][0];
  EXPECT_EQ(running["expires_at"], "1970-01-01T00:00:06Z");
  EXPECT_EQ(running["size_vram"], 3);
  EXPECT_EQ(running["context_length"], 64);
  EXPECT_EQ(ollama_tags_json({}), R"({"models":[]})");
}

TEST(OllamaListing, AModelIsShown) {
  const json shown = json::parse(ollama_show_json(
      qwen(),
      {.capabilities = {"completion", "tools"}, .parameters = "top_p 0.9\n", .embedding = 8}));
  EXPECT_EQ(shown["capabilities"], json::parse(R"(["completion","tools"])"));
  EXPECT_EQ(shown["parameters"], "top_p 0.9\n");
  EXPECT_EQ(shown["model_info"], json::parse(R"({"general.architecture":"qwen3",
      "qwen3.context_length":64,"qwen3.embedding_length":8})"));
  EXPECT_EQ(shown["details"]["family"], "qwen3");
}

TEST(OllamaListing, AModelOfExpertsIsShown) {
  OllamaModelObject model = qwen();
  model.family = "qwen3moe";
  model.parameters = 30'532'122'624;
  const json shown = json::parse(
      ollama_show_json(model, {.embedding = 8, .layers = 3, .experts = 128, .experts_used = 8}));
  EXPECT_EQ(shown["model_info"], json::parse(R"({"general.architecture":"qwen3moe",
      "general.parameter_count":30532122624,"qwen3moe.block_count":3,
      "qwen3moe.context_length":64,"qwen3moe.embedding_length":8,
      "qwen3moe.expert_count":128,"qwen3moe.expert_used_count":8})"));
  EXPECT_EQ(shown["details"]["parameter_size"], "30.5B");
}

TEST(OllamaListing, ParametersAreCountedAsOllamaDoes) {
  const auto size = [](std::int64_t parameters) {
    OllamaModelObject model = qwen();
    model.parameters = parameters;
    return json::parse(ollama_tags_json({model}))["models"][0]["details"]["parameter_size"];
  };
  EXPECT_EQ(size(134'515'008), "134.52M");
  EXPECT_EQ(size(846'656), "847K");
  EXPECT_EQ(size(999), "999");
  EXPECT_EQ(size(0), "");
}

TEST(OllamaListing, Vectors) {
  const Usage usage{.prompt_tokens = 2, .spent = {.total = std::chrono::nanoseconds(9)}};
  EXPECT_EQ(json::parse(ollama_embed_json("m", {{0.5F, 1}, {2, 3}}, usage)),
            json::parse(R"({"model":"m","embeddings":[[0.5,1.0],[2.0,3.0]],"total_duration":9,
                            "load_duration":0,"prompt_eval_count":2})"));
  EXPECT_EQ(json::parse(ollama_embeddings_json({0.5F}))["embedding"][0], 0.5);
}

TEST(OllamaListing, NewsAreLines) {
  EXPECT_EQ(ollama_status_line("success"), "{\"status\":\"success\"}\n");
  EXPECT_EQ(json::parse(ollama_status_line("pulling", "ab", 1, 2)),
            json::parse(R"({"status":"pulling","digest":"sha256:ab","total":2,"completed":1})"));
}

}  // namespace
}  // namespace heddle::api
