#include "cli/chat_settings.h"

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

TEST(ChatSettings, AreSetShownAndSent) {
  ChatSettings settings;
  EXPECT_EQ(settings.members(), "");
  EXPECT_TRUE(settings.set("temperature 0.5"));
  EXPECT_TRUE(settings.set(" seed  7 "));
  EXPECT_TRUE(settings.set("system You are brief."));
  EXPECT_EQ(settings.members(), R"(,"temperature":0.5,"seed":7)");
  EXPECT_EQ(settings.system, "You are brief.");
  EXPECT_NE(settings.shown().find("temperature  0.5"), std::string::npos);
  EXPECT_NE(settings.shown().find("top_p        the model's own"), std::string::npos);
  EXPECT_TRUE(settings.set("temperature"));
  EXPECT_EQ(settings.members(), R"(,"seed":7)");
}

TEST(ChatSettings, WhatIsWrongIsSaid) {
  ChatSettings settings;
  EXPECT_EQ(settings.set("temperature warm").error().message,
            "temperature: is \"warm\"; want a number from 0 to 100");
  EXPECT_FALSE(settings.set("max_tokens 0"));
  EXPECT_FALSE(settings.set("colour red"));
  EXPECT_FALSE(settings.set(""));
}

TEST(JoinedPrompt, PutsWhatWasPipedInBehind) {
  EXPECT_EQ(joined_prompt("Sum up:", "a\nb\n\n"), "Sum up:\n\na\nb");
  EXPECT_EQ(joined_prompt("Hi", "\n"), "Hi");
}

}  // namespace
}  // namespace heddle::cli
