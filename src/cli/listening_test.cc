#include "cli/listening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Listening, TheOptionTakesTheConfigurationsPlace) {
  config::Config config;
  config.listen = {{.host = "127.0.0.1", .port = 1}};
  EXPECT_TRUE(listen_instead({}, config));
  EXPECT_EQ(config.listen[0].port, 1);
  ASSERT_TRUE(listen_instead({":8081", "localhost:2"}, config));
  ASSERT_EQ(config.listen.size(), 2U);
  EXPECT_EQ(config.listen[0].host, "0.0.0.0") << "as llama-swap and Go have it";
  const Result<void> wrong = listen_instead({"x:y"}, config);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("--listen: \"x:y\" is not an address"));
}

TEST(Listening, WhoOpensTheDoorToAllIsWarned) {
  config::Config config;
  config.listen = {{.host = "127.0.0.1"}, {.host = "0.0.0.0"}};
  EXPECT_THAT(open_doors(config), ElementsAre(HasSubstr("0.0.0.0")));
  config.api_keys = {{.key = "k"}};
  EXPECT_TRUE(open_doors(config).empty());
}

TEST(Listening, LlamaSwapsOptionsAreRead) {
  EXPECT_THAT(with_two_dashes({"serve", "-config", "a", "-listen=:1", "-watch-config", "-c"}),
              ElementsAre("serve", "--config", "a", "--listen=:1", "--watch-config", "-c"));
}

}  // namespace
}  // namespace heddle::cli
