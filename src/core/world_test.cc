#include <gtest/gtest.h>

#include "core/test_world.h"

namespace heddle::core::test {
namespace {

std::int64_t count(const World& world, Record::End end) {
  std::int64_t n = 0;
  for (const auto& [id, record] : world.records()) {
    n += record.end == end ? 1 : 0;
  }
  return n;
}

TEST(World, EveryRequestEndsWhenNothingGoesWrong) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world({.seed = seed});
    world.run();
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
  }
}

}  // namespace
}  // namespace heddle::core::test
