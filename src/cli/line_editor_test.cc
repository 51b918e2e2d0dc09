#include "cli/line_editor.h"

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using Outcome = LineEditor::Outcome;

/// The line that these keys make; the last one's outcome is `outcome`.
std::string typed(const std::string& keys,
                  Outcome outcome = Outcome::kMore,
                  const std::vector<std::string>& history = {}) {
  LineEditor editor(history);
  Outcome last = Outcome::kMore;
  for (const char key : keys) {
    last = editor.push(key);
  }
  EXPECT_EQ(last, outcome);
  return editor.line();
}

TEST(LineEditor, TakesWhatIsTyped) {
  EXPECT_EQ(typed("one\r", Outcome::kDone), "one");
  EXPECT_EQ(typed("\x04", Outcome::kEnd), "");
  EXPECT_EQ(typed("x\x04"), "x") << "the end of input only where nothing is typed";
  EXPECT_EQ(typed("x\x03", Outcome::kCancelled), "");
}

TEST(LineEditor, MovesAndErases) {
  EXPECT_EQ(typed("ac\x1b[Db"), "abc");
  EXPECT_EQ(typed("bc\x01"
                  "a\x05"
                  "d"),
            "abcd");
  EXPECT_EQ(typed("b\x1b[Ha\x1b[Fc"), "abc");
  EXPECT_EQ(typed("abx\x7f"
                  "c"),
            "abc");
  EXPECT_EQ(typed("axb\x1b[D\x1b[D\x1b[3~"), "ab");
  EXPECT_EQ(typed("one two \x17"), "one ");
  EXPECT_EQ(typed("one\x1b[D\x15"), "e");
  EXPECT_EQ(typed("one\x1b[D\x0b"), "on");
  EXPECT_EQ(typed("\x1b[D\x7f\x1b[C"), "") << "there is nothing to move over";
}

TEST(LineEditor, CharactersOfSeveralBytesAreOne) {
  EXPECT_EQ(typed("\xC3\xA9\xE2\x82\xAC\x7f"), "\xC3\xA9");
  EXPECT_EQ(typed("\xC3\xA9\xE2\x82\xAC\x1b[Dx"), "\xC3\xA9x\xE2\x82\xAC");
  LineEditor editor({});
  for (const char key : std::string("\xC3\xA9\xE2\x82\xAC\x01")) {
    (void)editor.push(key);
  }
  EXPECT_EQ(editor.behind_cursor(), 2U);
}

TEST(LineEditor, EarlierLinesComeBack) {
  const std::vector<std::string> history{"first", "second"};
  EXPECT_EQ(typed("\x1b[A", Outcome::kMore, history), "second");
  EXPECT_EQ(typed("\x1b[A\x1b[A\x1b[A", Outcome::kMore, history), "first");
  EXPECT_EQ(typed("new\x1b[A\x1b[B", Outcome::kMore, history), "new");
  EXPECT_EQ(typed("\x1b[A\x1b[A\x1b[B!", Outcome::kMore, history), "second!");
  EXPECT_EQ(typed("\x1b[B", Outcome::kMore, history), "");
}

}  // namespace
}  // namespace heddle::cli
