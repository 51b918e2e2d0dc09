#include "weave/step_table.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "weave/test_pair.h"

namespace heddle::weave {
namespace {

TEST(StepTable, ACopyIsWhatWasWrittenAndStaysSo) {
  const auto area = JobArea::create(test::geometry()).value();
  const Geometry& g = area->geometry();
  ASSERT_TRUE(write_step(*area, 1, test::Pair::sequences()));
  StepTable table;
  ASSERT_TRUE(table.take(*area, 1, 2));
  EXPECT_EQ(table.numbers()[1], 2 * ops::attention_border());
  std::set<PageId> lease;
  for (std::uint64_t page = 8; page < test::kPages; ++page) {
    lease.emplace(page);
  }
  EXPECT_TRUE(table.check(g, g.places[0], lease));
  area->table(1)[static_cast<std::size_t>(StepTable::blocks_at(g, 0))] = -5;
  EXPECT_TRUE(table.check(g, g.places[0], lease));
  lease.erase(PageId(8));
  EXPECT_EQ(table.check(g, g.places[0], lease).error().code, Code::kInvalidArgument);
}

TEST(StepTable, WhatHasNoRoomIsNotWritten) {
  const auto area = JobArea::create(test::geometry()).value();
  EXPECT_FALSE(write_step(*area, 1, std::vector<ops::GuestSequence>(5)));
  std::vector<ops::GuestSequence> wide(1);
  wide[0].blocks.resize(3);
  EXPECT_FALSE(write_step(*area, 1, wide));
  wide[0].blocks.resize(1);
  wide[0].blocks[0].resize(65);
  EXPECT_FALSE(write_step(*area, 1, wide));
  StepTable table;
  for (const std::int64_t rows : {0, 5}) {
    EXPECT_EQ(table.take(*area, 1, rows).error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace heddle::weave
