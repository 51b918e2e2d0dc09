#include "text/piece_table.h"

#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace heddle::text {
namespace {

std::string record(std::uint8_t kind, const std::string& text, const std::string& first) {
  std::string bytes(1, static_cast<char>(kind));
  for (const std::string& part : {text, first}) {
    const auto size = static_cast<std::uint32_t>(part.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += part;
  }
  return bytes;
}

TEST(PieceTable, ReadsRecords) {
  const std::string records =
      record(1, " a", "a") + record(0, "", "") + record(0x82, "\xE4", "\xE4") + record(3, "b", "b");
  const auto table = PieceTable::read({.id_limit = 4, .strip_count = 1, .strip = " "}, records);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->at(0).kind, PieceKind::kText);
  EXPECT_EQ(table->at(0).text, " a");
  EXPECT_EQ(table->at(0).first, "a");
  EXPECT_FALSE(table->at(0).special);
  EXPECT_EQ(table->at(1).kind, PieceKind::kNone);
  EXPECT_EQ(table->at(2).kind, PieceKind::kFallbackByte);
  EXPECT_TRUE(table->at(2).special);
  EXPECT_EQ(table->at(2).first, "\xE4");
  EXPECT_EQ(table->at(3).kind, PieceKind::kFragment);
  EXPECT_EQ(table->rules().strip_count, 1U);
}

TEST(PieceTable, IdsOutsideAreNoTokens) {
  const auto table = PieceTable::read({.id_limit = 1}, record(1, "a", "a"));
  ASSERT_TRUE(table) << table.error().message;
  for (const TokenId id : {-1, 1, 1 << 30}) {
    EXPECT_EQ(table->at(id).kind, PieceKind::kNone) << id;
    EXPECT_EQ(table->at(id).text, "") << id;
  }
}

TEST(PieceTable, RefusesBrokenRecords) {
  const std::string whole = record(1, "abc", "abc");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto table = PieceTable::read({.id_limit = 1}, whole.substr(0, size));
    ASSERT_FALSE(table) << size;
    EXPECT_EQ(table.error().code, Code::kCorrupt);
  }
  EXPECT_FALSE(PieceTable::read({.id_limit = 1}, record(4, "a", "a")));
  EXPECT_FALSE(PieceTable::read({.id_limit = 2}, whole));
}

}  // namespace
}  // namespace heddle::text
