#include "store/text_files.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace heddle::store
