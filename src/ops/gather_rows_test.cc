#include "ops/gather_rows.h"

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class GatherRowsTest : public OpTest {};

TEST_F(GatherRowsTest, PicksRowsInAnyOrderAndOften) {
  const std::vector<float> table{0, 1, 2, 10, 11, 12, 20, 21, 22};
  const std::vector<std::int32_t> rows{2, 0, 2};
  std::vector<float> out(9);
  gather_rows(context_,
              {.table = matrix_of(table.data(), 3, 3),
               .rows = vector_of(rows.data(), 3),
               .out = matrix_of(out.data(), 3, 3)});
  synchronize();
  EXPECT_EQ(out, (std::vector<float>{20, 21, 22, 0, 1, 2, 20, 21, 22}));
}

TEST_F(GatherRowsTest, OfAPartOfATableGivesZerosForTheRest) {
  const std::vector<float> table{20, 21, 30, 31};
  const std::vector<std::int32_t> rows{1, 3, 2, 4, 0};
  std::vector<float> out(10, -1.0F);
  gather_rows(context_,
              {.table = matrix_of(table.data(), 2, 2),
               .rows = vector_of(rows.data(), 5),
               .first = 2,
               .out = matrix_of(out.data(), 5, 2)});
  synchronize();
  EXPECT_EQ(out, (std::vector<float>{0, 0, 30, 31, 20, 21, 0, 0, 0, 0}));
}

TEST_F(GatherRowsTest, WidensBf16Exactly) {
  const auto table = rounded(random(5 * 7));
  const std::vector<std::int32_t> rows{4, 1};
  std::vector<float> out(14);
  gather_rows(context_,
              {.table = bf16_matrix(table, 5, 7),
               .rows = vector_of(rows.data(), 2),
               .out = matrix_of(out.data(), 2, 7)});
  synchronize();
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(out[i], from_bf16(table[28 + i]));
    EXPECT_EQ(out[7 + i], from_bf16(table[7 + i]));
  }
}

TEST_F(GatherRowsTest, OfNoRowsDoesNothing) {
  const std::vector<float> table(3);
  gather_rows(context_,
              {.table = matrix_of(table.data(), 1, 3),
               .rows = vector_of(static_cast<const std::int32_t*>(nullptr), 0),
               .out = matrix_of(static_cast<float*>(nullptr), 0, 3)});
  synchronize();
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F), 0x3f80) << "a tie goes to the even one below";
  EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82) << "and to the even one above";
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);
  EXPECT_EQ(to_bf16(3.4e38F), 0x7f80) << "beyond the largest: infinity";
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

}  // namespace
}  // namespace heddle::ops
