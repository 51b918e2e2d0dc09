#include "text/model_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/test_gguf.h"

namespace heddle::text {
namespace {

using testing::ElementsAre;

TEST(ModelTexts, AreTheFilesOfADirectory) {
  const TempDirectory directory;
  write_text(directory.path() / "config.json", "{}");
  write_text(directory.path() / "more/b.jinja", "B");
  write_text(directory.path() / "more/a.jinja", "A");
  write_text(directory.path() / "more/c.txt", "C");
  const ModelTexts texts = ModelTexts::open(directory.path()).value();
  EXPECT_EQ(texts.read("config.json").value(), "{}");
  EXPECT_EQ(texts.read("more/a.jinja").value(), "A");
  EXPECT_THAT(texts.names_in("more", ".jinja"), ElementsAre("a.jinja", "b.jinja"));
  EXPECT_THAT(texts.names_in("absent", ".jinja"), ElementsAre());
  EXPECT_EQ(texts.read("more/absent").error().code, Code::kNotFound);
  EXPECT_EQ(texts.read("more/absent").error().message, "absent: no such file");
  EXPECT_EQ(texts.read("more").error().code, Code::kCorrupt);
}

TEST(ModelTexts, AreMadeOfAGgufFile) {
  const TempDirectory directory;
  gguf::TestGguf file = gguf::small_model();
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  file.texts("tokenizer.ggml.tokens", {"a"}).texts("tokenizer.ggml.merges", {});
  write_text(directory.path() / "m.gguf", file.bytes());
  const ModelTexts texts = ModelTexts::open(directory.path() / "m.gguf").value();
  EXPECT_THAT(texts.read("config.json").value(), testing::HasSubstr("\"LlamaForCausalLM\""));
  EXPECT_EQ(texts.read("generation_config.json").value(),
            R"({"temperature":0.8,"top_p":0.95,"top_k":40,"min_p":0.05})");
  EXPECT_EQ(texts.read("chat_template.jinja").error().code, Code::kNotFound);
  EXPECT_THAT(texts.names_in("", ".json"), ElementsAre());
}

}  // namespace
}  // namespace heddle::text
