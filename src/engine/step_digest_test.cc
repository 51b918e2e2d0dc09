#include "engine/step_digest.h"

#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

Sequence sequence(std::uint64_t id, std::vector<TokenId> tokens, std::int64_t computed) {
  Sequence made;
  made.start.id = SequenceId{id};
  made.start.prompt_tokens = static_cast<std::int64_t>(tokens.size());
  made.start.tokens = std::move(tokens);
  made.computed = computed;
  return made;
}

TEST(StepDigest, TellsApartWhatIsComputed) {
  const Sequence base = sequence(1, {5, 6, 7, 8}, 1);
  const PassSlice slice{.sequence = &base, .tokens = 2};
  const std::uint64_t digest = step_digest({&slice, 1}, 64);

  const Sequence named_otherwise = sequence(9, {5, 6, 7, 8}, 1);
  const PassSlice same{.sequence = &named_otherwise, .tokens = 2};
  EXPECT_EQ(step_digest({&same, 1}, 64), digest);

  const PassSlice longer{.sequence = &base, .tokens = 3};
  EXPECT_NE(step_digest({&longer, 1}, 64), digest);
  const Sequence other_token = sequence(1, {5, 6, 9, 8}, 1);
  const PassSlice of_other_token{.sequence = &other_token, .tokens = 2};
  EXPECT_NE(step_digest({&of_other_token, 1}, 64), digest);
  const Sequence elsewhere = sequence(1, {4, 5, 6, 7, 8}, 2);
  const PassSlice of_elsewhere{.sequence = &elsewhere, .tokens = 2};
  EXPECT_NE(step_digest({&of_elsewhere, 1}, 64), digest);
  const Sequence at_its_end = sequence(1, {5, 6, 7}, 1);  // It samples.
  const PassSlice of_end{.sequence = &at_its_end, .tokens = 2};
  EXPECT_NE(step_digest({&of_end, 1}, 64), digest);
  EXPECT_NE(step_digest({}, 64), digest);
  EXPECT_NE(step_digest({&slice, 1}, 32), digest) << "rows are cut otherwise";

  const Sequence second = sequence(2, {1, 2}, 0);
  const PassSlice both[] = {slice, {.sequence = &second, .tokens = 1}};
  const PassSlice swapped[] = {both[1], both[0]};
  EXPECT_NE(step_digest(both, 64), step_digest(swapped, 64));
}

}  // namespace
}  // namespace heddle::engine
