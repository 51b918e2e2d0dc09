#include "external/output.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/log_tail.h"
#include "external/test_engine.h"

#include <unistd.h>

namespace heddle::external {
namespace {

void write_all(const Descriptor& into, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(into.get(), text.data(), text.size());
    HEDDLE_CHECK(wrote > 0);
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

/// What the log has about a model.
std::vector<std::string> logged(const std::string& model) {
  std::vector<std::string> texts;
  for (const log::Line& line : log::tail()) {
    if (line.model == model) {
      texts.push_back(line.text);
    }
  }
  return texts;
}

TEST(Output, BecomesLinesOfTheLogUnderTheModelsName) {
  Output output("lines");
  Descriptor into = output.open().value();
  write_all(into, "first\r\nsec");
  write_all(into, "ond\n\n");
  write_all(into, "the last, without an end");
  into = Descriptor();
  output.wait(1min);
  EXPECT_EQ(output.last_lines(),
            (std::vector<std::string>{"first", "second", "the last, without an end"}));
  const std::vector<std::string> lines = logged("lines");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[1].find("second"), std::string::npos) << lines[1];
}

TEST(Output, OfAFloodIsMostlyDroppedAndHoldsNobodyUp) {
  constexpr OutputLimits kLimits{.line_bytes = 100, .burst = 5, .per_second = 1, .kept = 3};
  Output output("flood", kLimits);
  Descriptor into = output.open().value();
  std::string block;
  for (int i = 0; i < 1000; ++i) {
    block += "line " + std::to_string(i) + " " + std::string(200, 'x') + "\n";
  }
  const Instant began = steady_now();
  for (int i = 0; i < 100; ++i) {  // 20 MB.
    write_all(into, block);
  }
  into = Descriptor();
  output.wait(1min);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(steady_now() - began).count();
  const std::vector<std::string> last = output.last_lines();
  ASSERT_EQ(last.size(), 3U);
  EXPECT_EQ(last.back().substr(0, 9), "line 999 ");
  EXPECT_EQ(last.back().size(), 100U) << "cut";
  const std::vector<std::string> lines = logged("flood");
  // What was left out is said once for each line that is logged again, and at the end.
  EXPECT_LE(lines.size(), 2 * static_cast<std::size_t>(5 + seconds) + 1);
  EXPECT_NE(lines.back().find("left out"), std::string::npos) << lines.back();
}

TEST(Output, DoesNotWaitForWhoNeverClosesIt) {
  std::optional<Output> output("stray");
  const Descriptor into = output->open().value();
  write_all(into, "said\n");
  ASSERT_TRUE(comes_true([&] { return !output->last_lines().empty(); }));
  output.reset();  // The test ends.
  EXPECT_EQ(logged("stray").size(), 1U);
}

}  // namespace
}  // namespace heddle::external
