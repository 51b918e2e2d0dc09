#include "policy/state_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr StatePoint lasting(std::int64_t length) {
  return {.length = length, .lasting = true};
}

TEST(StatePoints, ThePromptsLastBlockLastsAndWhatFollowsDoesNot) {
  StateSpan span{.begin = 0, .end = 100, .prompt = 100, .block = 16, .apart = 1600};
  EXPECT_THAT(state_points(span), ElementsAre(lasting(96)));
  span.prompt = 96;  // Of a prompt that is asked again the last token is computed.
  span.end = 96;
  EXPECT_THAT(state_points(span), ElementsAre(lasting(80)));
  span.begin = 110;
  span.end = 111;
  EXPECT_THAT(state_points(span), IsEmpty());
  span.begin = 111;
  span.end = 112;
  EXPECT_THAT(state_points(span), ElementsAre(StatePoint{.length = 112}));
}

TEST(StatePoints, AChunkOfAPromptHasItsLastBorderUntilTheNext) {
  const StateSpan span{.begin = 20, .end = 90, .prompt = 300, .block = 16, .apart = 1600};
  EXPECT_THAT(state_points(span), ElementsAre(StatePoint{.length = 80}));
}

TEST(StatePoints, LongPromptsHaveOneInEachStretchAndWhereTheyPart) {
  const StateSpan span{
      .begin = 64, .end = 500, .prompt = 400, .block = 16, .apart = 160, .parted = 208};
  EXPECT_THAT(state_points(span),
              ElementsAre(lasting(160), lasting(208), lasting(320), lasting(384)));
}

TEST(StatePoints, APlaceOfTwoKindsIsOne) {
  const StateSpan span{
      .begin = 0, .end = 330, .prompt = 321, .block = 16, .apart = 160, .parted = 160};
  EXPECT_THAT(state_points(span), ElementsAre(lasting(160), lasting(320)));
}

TEST(StatePoints, LastingOnesDoNotDependOnTheChunks) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const auto prompt = static_cast<std::int64_t>(1 + rng.below(900));
    const auto parted = static_cast<std::int64_t>(rng.below(20)) * 16;
    StateSpan span{
        .begin = 0, .end = prompt, .prompt = prompt, .block = 16, .apart = 160, .parted = parted};
    std::vector<StatePoint> whole = state_points(span);
    std::erase_if(whole, [](const StatePoint& point) { return !point.lasting; });
    std::vector<StatePoint> cut;
    for (span.end = 0; span.end < prompt; span.begin = span.end) {
      span.end = std::min(prompt, span.end + static_cast<std::int64_t>(1 + rng.below(70)));
      for (const StatePoint& point : state_points(span)) {
        if (point.lasting) {
          cut.push_back(point);
        }
      }
    }
    EXPECT_EQ(cut, whole) << "round " << round << " of seed 7";
  }
}

TEST(StatePoints, CopiesHaveAFifthAtMost) {
  // Qwen3.5-35B-A3B: 63 MiB beside 20 KiB a token.
  const std::int64_t apart = state_spacing(63 << 20, 20 << 10, 16);
  EXPECT_EQ(apart, 12912);
  EXPECT_EQ(state_spacing(1, 1000, 16), 16);
}

}  // namespace
}  // namespace heddle::policy
