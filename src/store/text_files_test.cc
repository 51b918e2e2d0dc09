#include "store/text_files.h"

#include <gtest/gtest.h>

#include "gguf/test_gguf.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

TEST(TextFiles, AreThoseBesideTheWeightsInOrder) {
  const TempDirectory folder;
  for (const char* name :
       {"tokenizer.json", "config.json", "chat_template.jinja", "w.safetensors"}) {
    write_text(folder.path() / name, "x");
  }
  const auto files = text_files(folder.path());
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 3U);
  EXPECT_EQ(files->front(), folder.path() / "chat_template.jinja");
  EXPECT_EQ(files->back(), folder.path() / "tokenizer.json");
  EXPECT_EQ(text_files(folder.path() / "gone").error().code, Code::kNotFound);
}

TEST(TextSources, AreFilesOrMadeOfAGgufFile) {
  const TempDirectory folder;
  write_text(folder.path() / "d/config.json", "{}");
  const auto files = text_sources(folder.path() / "d");
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 1U);
  EXPECT_EQ(files->front().name, "config.json");
  EXPECT_EQ(files->front().path, folder.path() / "d/config.json");
  EXPECT_EQ(files->front().made, nullptr);

  gguf::TestGguf file = gguf::small_model();
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  file.texts("tokenizer.ggml.tokens", {"a"}).texts("tokenizer.ggml.merges", {});
  write_text(folder.path() / "m.gguf", file.bytes());
  const auto made = text_sources(folder.path() / "m.gguf");
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 4U);
  EXPECT_EQ(made->at(2).name, "tokenizer.json");
  ASSERT_NE(made->at(2).made, nullptr);
  EXPECT_TRUE(made->at(2).made->starts_with("{\"version\":\"1.0\""));
  EXPECT_FALSE(text_sources(folder.path() / "gone"));
}

}  // namespace
}  // namespace heddle::store
