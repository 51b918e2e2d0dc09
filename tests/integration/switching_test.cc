// Models that do not fit together, in turn, on real workers.

#include <gtest/gtest.h>

#include "engine/test_host.h"
#include "live_system.h"

namespace heddle::tests {
namespace {

std::vector<TokenId> prompt_of(const engine::Golden& golden) {
  return {golden.input_ids.begin(), golden.input_ids.begin() + 16};
}

TEST(Switching, OneModelAnswersAsTransformersDo) {
  config::Config config = small_host(std::uint64_t{2} << 20U);
  add_golden(config, "qwen3-window");
  LiveSystem system(config);
  ASSERT_FALSE(system.failure().has_value()) << system.failure()->message;
  const engine::Golden golden = engine::read_golden("qwen3-window");
  const auto answer =
      system.ask("qwen3-window", prompt_of(golden), std::ssize(golden.greedy));
  ASSERT_TRUE(system.finish(*answer));
  ASSERT_TRUE(answer->done()) << answer->error()->message;
  EXPECT_EQ(answer->tokens(), golden.greedy);
}

}  // namespace
}  // namespace heddle::tests
