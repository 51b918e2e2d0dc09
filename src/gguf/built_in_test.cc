#include "gguf/built_in.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/test_gguf.h"

namespace heddle::gguf {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kIq4Xs = 23;

/// What is said of a file with these bytes.
Result<void> said_of(const TestGguf& file) {
  const TempDirectory directory;
  write_text(directory.path() / "m.gguf", file.bytes());
  return check_built_in(GgufFile::open(directory.path() / "m.gguf", Keep::kSmall).value());
}

TEST(BuiltIn, WhatAllPartsOfAreKnownIsServed) {
  EXPECT_TRUE(said_of(small_model().text("tokenizer.ggml.model", "llama")));
  EXPECT_TRUE(said_of(small_model().text("tokenizer.ggml.model", "gpt2")));
  EXPECT_TRUE(said_of(small_model("qwen3")
                          .text("tokenizer.ggml.model", "gpt2")
                          .text("tokenizer.ggml.pre", "qwen2")));
}

TEST(BuiltIn, AnEncoderIsButForWaysOfPooling) {
  const auto encoder = [](std::uint32_t pooling) {
    TestGguf file;
    file.text("general.architecture", "bert").text("tokenizer.ggml.model", "bert");
    for (const char* key : {"embedding_length", "block_count", "feed_forward_length"}) {
      file.u32(std::string("bert.") + key, 2);
    }
    for (const char* table : {"token_embd", "position_embd", "token_types"}) {
      file.zeros(std::string(table) + ".weight", {2, 4});
    }
    return said_of(file.u32("bert.attention.head_count", 1).u32("bert.pooling_type", pooling));
  };
  EXPECT_TRUE(encoder(1)) << encoder(1).error().message;
  ASSERT_FALSE(encoder(4));
  EXPECT_THAT(encoder(4).error().message, HasSubstr("bert.pooling_type"));
}

TEST(BuiltIn, WhatIsNotIsNamed) {
  const auto architecture = said_of(small_model("mamba").text("tokenizer.ggml.model", "gpt2"));
  ASSERT_FALSE(architecture);
  EXPECT_EQ(architecture.error().code, Code::kInvalidArgument);
  EXPECT_THAT(architecture.error().message, HasSubstr("\"mamba\""));

  TestGguf packed = small_model().text("tokenizer.ggml.model", "gpt2");
  packed.tensor(
      {.name = "output.weight", .sizes = {256, 1}, .type = kIq4Xs, .data = std::string(136, '\0')});
  const auto type = said_of(packed);
  ASSERT_FALSE(type);
  EXPECT_EQ(type.error().code, Code::kInvalidArgument);
  EXPECT_THAT(type.error().message, HasSubstr("tensor \"output.weight\" has type IQ4_XS"));

  const auto pieces = said_of(small_model().text("tokenizer.ggml.model", "rwkv"));
  ASSERT_FALSE(pieces);
  EXPECT_THAT(pieces.error().message, HasSubstr("\"rwkv\""));
  const auto cut = said_of(
      small_model().text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "other"));
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message, HasSubstr("\"other\""));
}

TEST(BuiltIn, AFileThatIsWrongIsNotTakenForAnother) {
  TestGguf broken;
  broken.text("general.architecture", "llama").zeros("token_embd.weight", {16, 8});
  const auto said = said_of(broken);
  ASSERT_FALSE(said);
  EXPECT_NE(said.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::gguf
