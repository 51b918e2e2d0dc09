#include "spec/json_view.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(JsonView, FindsWhatIsThereAndNothingElse) {
  const Json json = *parse_json(R"({"a":{"b":"x","n":7,"r":0.5},"l":[1,2]})", "test");
  EXPECT_EQ(text_at(json, {"a", "b"}), "x");
  EXPECT_EQ(text_at(json, {"a", "n"}), "7");
  EXPECT_EQ(text_at(json, {"a", "none"}), "");
  EXPECT_EQ(text_at(json, {"l"}), "");
  EXPECT_EQ(number_at(json, {"a", "r"}), 0.5);
  EXPECT_EQ(number_at(json, {"a", "n"}), 7);
  EXPECT_EQ(number_at(json, {"a", "b"}), 0);
  EXPECT_EQ(items_at(json, {"l"}).size(), 2U);
  EXPECT_TRUE(items_at(json, {"a"}).empty());
  EXPECT_EQ(value_at<bool>(json, {"a", "b"}), nullptr);
  EXPECT_EQ(*value_at<std::int64_t>(json, {"a", "n"}), 7);
  EXPECT_EQ(value_at(json, {"l", "a"}), nullptr);
  EXPECT_EQ(value_at(json, {}), &json);
}

}  // namespace
}  // namespace heddle::spec
