#include "core/serving.h"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

TEST(Reasons, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kEvictionReasons; ++i) {
    names.insert(name(static_cast<EvictionReason>(i)));
  }
  EXPECT_EQ(names.size(), kEvictionReasons);
  EXPECT_FALSE(names.contains("?"));
  EXPECT_EQ(name(LoadReason::kRequest), "request");
  EXPECT_EQ(name(LoadReason::kOperator), "operator");
}

}  // namespace
}  // namespace heddle::core
