#include "lab/answers.h"

#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;

bench::Row row(Duration due, std::uint64_t digest, std::string error = {}) {
  return {.due = due, .digest = digest, .error = std::move(error)};
}

TEST(CompareAnswers, HoldsEachAgainstThatToTheSameRequest) {
  const LabRun first{.seed = 1,
                     .rows = {row(1s, 11), row(2s, 12), row(3s, 13, "lost"), row(4s, 0)}};
  const LabRun same{.seed = 1, .rows = {row(2s, 12), row(1s, 11), row(3s, 99), row(4s, 98)}};
  const LabRun other{.seed = 1, .rows = {row(1s, 11), row(2s, 77)}};
  const LabRun seed{.seed = 2, .rows = {row(1s, 55)}};
  const auto agreements = compare_answers({{.policy = "dedicated", .runs = {&first}},
                                           {.policy = "same", .runs = {&same}},
                                           {.policy = "other", .runs = {&other, &seed}},
                                           {.policy = "none", .runs = {&seed}}});
  ASSERT_EQ(agreements.size(), 3U);
  EXPECT_EQ(describe(agreements[0], "dedicated"), "same: all 2 answers are those of dedicated");
  EXPECT_EQ(describe(agreements[1], "dedicated"),
            "other: 1 of 2 answers differ from those of dedicated");
  EXPECT_EQ(describe(agreements[2], "dedicated"),
            "none: no answer could be compared with those of dedicated");
}

}  // namespace
}  // namespace heddle::lab
