#include "gateway/request_id.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

TEST(RequestId, IsSaneWhereItIsShortAndPlain) {
  EXPECT_TRUE(is_sane_request_id("aZ09-_.:"));
  EXPECT_TRUE(is_sane_request_id(std::string(128, 'a')));
  for (const std::string& id :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("é")}) {
    EXPECT_FALSE(is_sane_request_id(id)) << id;
  }
}

TEST(RequestId, IsDrawnAnewEachTime) {
  Rng rng(1);
  std::set<std::string> drawn;
  for (int i = 0; i < 100; ++i) {
    const std::string id = draw_request_id(rng);
    EXPECT_TRUE(is_sane_request_id(id));
    drawn.insert(id);
  }
  EXPECT_EQ(drawn.size(), 100U);
}

}  // namespace
}  // namespace heddle::gateway
