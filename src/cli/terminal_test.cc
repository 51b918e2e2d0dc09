#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsTheyNeed) {
  EXPECT_EQ(format_table({{"NAME", "STATE"}, {"caf\xc3\xa9", "x"}, {"longer name", "loaded"}}),
            "NAME         STATE\n"
            "caf\xc3\xa9         x\n"
            "longer name  loaded\n");
  EXPECT_EQ(format_table({}), "");
}

TEST(CutToWidth, CutsBetweenCharacters) {
  EXPECT_EQ(cut_to_width("caf\xc3\xa9s", 4), "caf\xc3\xa9");
  EXPECT_EQ(cut_to_width("caf\xc3\xa9s", 3), "caf");
  EXPECT_EQ(cut_to_width("short", 9), "short");
  EXPECT_EQ(cut_to_width("short", 0), "");
}

TEST(Bar, FillsAndStaysWithinItsEnds) {
  EXPECT_EQ(format_bar(0), "[..............................]   0 %");
  EXPECT_EQ(format_bar(0.5), "[###############...............]  50 %");
  EXPECT_EQ(format_bar(7), "[##############################] 100 %");
  EXPECT_EQ(format_bar(-1), format_bar(0));
}

TEST(Printable, TakesTheTeethOutOfControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31mb\x7f\n\tc\xc3\xa9"), "a?[31mb?\n\tc\xc3\xa9");
}

}  // namespace
}  // namespace heddle::cli
