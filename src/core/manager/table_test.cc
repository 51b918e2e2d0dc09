#include "core/manager/table.h"

#include <gtest/gtest.h>

#include "base/ids.h"
#include "base/rng.h"

namespace heddle::core::manager {
namespace {

TEST(Table, IsAMap) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Table<ModelId, std::uint64_t> table;
    std::map<ModelId, std::uint64_t> map;
    for (std::uint64_t i = 0; i < 2'000; ++i) {
      const ModelId key(rng.below(40) << (rng.below(2) * 16U));
      switch (rng.below(5)) {
        case 0:
          table.erase(key);
          map.erase(key);
          break;
        case 1:
          ASSERT_EQ(table.try_emplace(key, i).second, map.try_emplace(key, i).second);
          break;
        case 2:
          table[key] = i;
          map[key] = i;
          break;
        case 3:
          if (rng.below(50) == 0) {
            table.erase_if([](const auto& entry) { return entry.second % 2 == 0; });
            std::erase_if(map, [](const auto& entry) { return entry.second % 2 == 0; });
          }
          break;
        default:
          ASSERT_EQ(table.contains(key), map.contains(key));
          ASSERT_EQ(table.find(key) == table.end(), map.find(key) == map.end());
      }
      ASSERT_TRUE(std::equal(table.begin(), table.end(), map.begin(), map.end()));
    }
    for (const auto& [key, value] : map) {
      ASSERT_EQ(table.at(key), value);
      ASSERT_EQ(table.find(key)->first, key);
    }
  }
}

TEST(Table, EntriesStayWhereTheyAre) {
  Table<ModelId, int> table;
  const int* first = &table.try_emplace(ModelId(7), 1).first->second;
  for (std::uint64_t i = 100; i < 1'000; ++i) {
    table[ModelId(i)] = 2;
  }
  EXPECT_EQ(&table.at(ModelId(7)), first);
  EXPECT_EQ(table.begin()->first, ModelId(7));
  EXPECT_EQ(table.lower_bound(ModelId(50))->first, ModelId(100));
}

TEST(Table, WhatIsNotThereIsNot) {
  Table<ModelId, int> table;
  EXPECT_TRUE(table.empty());
  EXPECT_FALSE(table.contains(ModelId(1)));
  EXPECT_DEATH((void)table.at(ModelId(1)), "kNone");
}

}  // namespace
}  // namespace heddle::core::manager
