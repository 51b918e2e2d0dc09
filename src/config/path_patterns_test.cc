#include "config/path_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Config> parse_paths(const std::string& upstream) {
  const Environment environment = [](const std::string& /*name*/) { return std::nullopt; };
  return parse_config(
      "models: {}\n" + upstream, "heddle.yaml", environment, {.cores = {0}, .memory = 8ULL << 30U});
}

TEST(PathPatterns, AreFoundInPaths) {
  const Result<PathPatterns> files = PathPatterns::parse({std::string(kStaticFiles), "^/ws$"});
  ASSERT_TRUE(files);
  EXPECT_TRUE(files->match("/assets/app.js"));
  EXPECT_TRUE(files->match("/favicon.ico"));
  EXPECT_TRUE(files->match("/ws"));
  EXPECT_FALSE(files->match("/ws/more"));
  EXPECT_FALSE(files->match("/v1/chat/completions"));
  EXPECT_FALSE(files->match("/app.json5"));
  EXPECT_FALSE(files->match("/app.JS"));
  EXPECT_TRUE(PathPatterns::parse({"(?i)\\.js$"})->match("/app.JS"));
  EXPECT_FALSE(PathPatterns().match("/app.js"));
  EXPECT_FALSE(files->match("/" + std::string(2000, 'a') + ".js")) << "too long to look at";
}

TEST(PathPatterns, AreExpressions) {
  EXPECT_THAT(PathPatterns::parse({"(a"}).error().message, HasSubstr("\"(a\""));
  EXPECT_FALSE(PathPatterns::parse({std::string(257, 'a')}));
}

TEST(PathPatterns, AreReadFromTheFile) {
  EXPECT_THAT(parse_paths("")->ignore_paths, ElementsAre(std::string(kStaticFiles)));
  EXPECT_THAT(parse_paths("upstream: {ignorePaths: []}")->ignore_paths,
              ElementsAre(std::string(kStaticFiles)));
  EXPECT_THAT(parse_paths("upstream: {ignorePaths: ['^/ws$']}")->ignore_paths,
              ElementsAre("^/ws$"));
  EXPECT_THAT(parse_paths("upstream: {ignorePaths: ['(a']}").error().message,
              HasSubstr("upstream.ignorePaths"));
}

}  // namespace
}  // namespace heddle::config
