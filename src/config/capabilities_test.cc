#include "config/capabilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Config> parse_capabilities(const std::string& text) {
  const Environment environment = [](const std::string& /*name*/) { return std::nullopt; };
  return parse_config("models: {a: {cmd: \"server ${PORT}\", capabilities: " + text + "}}",
                      "heddle.yaml",
                      environment,
                      {.cores = {0}, .memory = 8ULL << 30U});
}

TEST(CapabilitiesConfig, AreReadAsLlamaSwapHasThem) {
  const Result<Config> config =
      parse_capabilities("{in: [text, image], out: [text], tools: true, context: 32000}");
  ASSERT_TRUE(config) << config.error().message;
  const Capabilities& read = config->models[0].capabilities;
  EXPECT_THAT(read.in, ElementsAre("text", "image"));
  EXPECT_THAT(read.out, ElementsAre("text"));
  EXPECT_TRUE(read.tools);
  EXPECT_FALSE(read.reranker);
  EXPECT_EQ(read.context, 32000);
  EXPECT_FALSE(read.empty());
  EXPECT_TRUE(Capabilities{}.empty());
}

TEST(CapabilitiesConfig, AreOfWhatThereIs) {
  const Result<Config> config = parse_capabilities("{in: [smell], context: -1}");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("\"smell\" is not one of text, audio, image"));
  EXPECT_THAT(config.error().message, HasSubstr("context"));
}

}  // namespace
}  // namespace heddle::config
