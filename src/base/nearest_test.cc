#include "base/nearest.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Nearest, FindsTyposAndOnlyThose) {
  const std::vector<std::string_view> words{"models", "listen", "devices"};
  EXPECT_EQ(nearest("modles", words), "models");
  EXPECT_EQ(nearest("device", words), "devices");
  EXPECT_EQ(nearest("quantum", words), "");
}

}  // namespace
}  // namespace heddle
