#include "gguf/tagged_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kRepository{"README.md",
                                           "qwen-7b-q4_k_m.gguf",
                                           "qwen-7b.Q8_0.gguf",
                                           "qwen-7b-IQ4_K_M.gguf",
                                           "mmproj-Q4_K_M.gguf",
                                           "BF16/qwen-7b-00002-of-00002.gguf",
                                           "BF16/qwen-7b-00001-of-00002.gguf"};

TEST(TaggedFiles, AreThoseOfOneModel) {
  EXPECT_THAT(*tagged_files(kRepository, "Q4_K_M"), ElementsAre("qwen-7b-q4_k_m.gguf"));
  EXPECT_THAT(*tagged_files(kRepository, "q8_0"), ElementsAre("qwen-7b.Q8_0.gguf"));
  EXPECT_THAT(*tagged_files(kRepository, "BF16"),
              ElementsAre("BF16/qwen-7b-00001-of-00002.gguf", "BF16/qwen-7b-00002-of-00002.gguf"));
}

TEST(TaggedFiles, AMissingTagNamesWhatThereIs) {
  const auto none = tagged_files(kRepository, "K_M");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("qwen-7b.Q8_0.gguf"));
  EXPECT_THAT(none.error().message, Not(HasSubstr("mmproj")));
  EXPECT_THAT(tagged_files({"a.txt"}, "Q8_0").error().message, HasSubstr("there is: none"));
}

TEST(TaggedFiles, AllPartsAreThere) {
  const auto half = tagged_files({"a-Q8_0-00001-of-00003.gguf"}, "Q8_0");
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, HasSubstr("of the 3 parts of a-Q8_0"));
}

TEST(TaggedFiles, ATagOfSeveralModelsIsRefused) {
  const auto both = tagged_files({"base-Q8_0.gguf", "chat-Q8_0.gguf"}, "Q8_0");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, Code::kInvalidArgument);
  EXPECT_THAT(both.error().message, HasSubstr("base-Q8_0, chat-Q8_0"));
}

}  // namespace
}  // namespace heddle::gguf
