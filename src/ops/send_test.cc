#include "ops/send.h"

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class SendTest : public OpTest {};

TEST_F(SendTest, CopiesWordsFromAnywhereAndTouchesNoOthers) {
  for (const std::size_t words : {0U, 1U, 3U, 4U, 1023U, 70'000U, 300'000U}) {
    for (const std::size_t shift : {0U, 1U}) {
      SCOPED_TRACE(std::to_string(words) + " words from " + std::to_string(shift));
      std::vector<std::uint32_t> source(words + 2);
      for (std::uint32_t& word : source) {
        word = static_cast<std::uint32_t>(rng_.below(1U << 30U));
      }
      std::vector<std::uint32_t> target(words + 2, 7);
      send(context_,
           {.source = reinterpret_cast<const std::byte*>(source.data() + shift),
            .target = reinterpret_cast<std::byte*>(target.data() + 1),
            .bytes = words * 4});
      synchronize();
      EXPECT_EQ(target.front(), 7U);
      EXPECT_EQ(target.back(), 7U);
      for (std::size_t i = 0; i < words; ++i) {
        ASSERT_EQ(target[i + 1], source[i + shift]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ops
