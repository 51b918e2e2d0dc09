#include "ops/penalties.h"

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class PenaltiesTest : public OpTest {};

TEST_F(PenaltiesTest, AppliesEachInItsOrderToListedTokensOnly) {
  std::vector<float> logits{8,
                            8,
                            8,
                            -8,
                            8,  //
                            1,
                            2,
                            3,
                            4,
                            5};
  const std::vector<TokenUse> uses{
      {.token = 1, .generated = 0, .bias = 2.0F, .seen = 0},  // Biased only.
      {.token = 2, .generated = 0, .bias = 0.0F, .seen = 1},  // In the prompt.
      {.token = 3, .generated = 3, .bias = 4.0F, .seen = 1},  // Biased, then generated thrice.
      {.token = 0, .generated = 0, .bias = -100.0F, .seen = 0}};
  const std::vector<PenaltyRow> rows{
      {.repetition = 2.0F, .presence = 0.5F, .frequency = 0.25F, .begin = 0, .end = 3},
      {.repetition = 2.0F, .presence = 0.5F, .frequency = 0.25F, .begin = 3, .end = 4}};
  penalties(context_,
            {.logits = matrix_of(logits.data(), 2, 5), .rows = rows.data(), .uses = uses.data()});
  synchronize();
  EXPECT_EQ(logits,
            (std::vector<float>{8,
                                8 + 2,
                                8.0F / 2,
                                (-8 + 4) * 2 - 0.5F - 0.25F * 3,
                                8,  //
                                -99,
                                2,
                                3,
                                4,
                                5}));
}

}  // namespace
}  // namespace heddle::ops
