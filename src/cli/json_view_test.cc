#include "cli/json_view.h"

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

TEST(JsonView, FindsWhatIsThereAndNothingElse) {
  const spec::Json json = *spec::parse_json(R"({"a":{"b":"x","n":7,"r":0.5},"l":[1,2]})", "test");
  EXPECT_EQ(text(json, {"a", "b"}), "x");
  EXPECT_EQ(text(json, {"a", "n"}), "7");
  EXPECT_EQ(text(json, {"a", "none"}), "");
  EXPECT_EQ(text(json, {"l"}), "");
  EXPECT_EQ(number(json, {"a", "r"}), 0.5);
  EXPECT_EQ(number(json, {"a", "n"}), 7);
  EXPECT_EQ(number(json, {"a", "b"}), 0);
  EXPECT_EQ(items(json, {"l"}).size(), 2U);
  EXPECT_TRUE(items(json, {"a"}).empty());
}

}  // namespace
}  // namespace heddle::cli
