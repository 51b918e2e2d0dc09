#include "sim/svg.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++times;
  }
  return times;
}

TEST(DrawPlot, PutsPointsWhereTheyBelong) {
  const std::string svg =
      draw_plot({{.label = "a<b", .points = {{0, 0}, {10, 1}}}}, {.title = "t", .y_most = 1});
  // The frame is 46..406 by 10..200, y upwards.
  EXPECT_NE(svg.find("points='46.0,200.0 406.0,10.0'"), std::string::npos) << svg;
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
}

TEST(DrawPlot, LogarithmicAxesHaveDecades) {
  const std::string svg = draw_plot({{.points = {{0, 0}, {0.01, 0.5}, {100, 1}}}}, {.log_x = true});
  for (const char* decade : {">0.01<", ">0.1<", ">1<", ">10<", ">100<"}) {
    EXPECT_NE(svg.find(decade), std::string::npos) << decade;
  }
}

TEST(DrawPlot, NothingAtAllIsStillAPicture) {
  EXPECT_NE(draw_plot({}, {.title = "empty"}).find("</svg>"), std::string::npos);
  EXPECT_NE(draw_plot({{.label = "x"}}, {.log_x = true}).find("</svg>"), std::string::npos);
}

TEST(DrawStrips, JoinWhatDoesNotChange) {
  Strip strip{.label = "GPU 0"};
  const StripPiece half{.owner = 0, .tone = 0, .part = 0.5};
  const StripPiece quarter{.owner = 1, .tone = 1, .part = 0.25};
  strip.moments = {{half}, {half}, {half, quarter}, {quarter}};
  const std::string svg =
      draw_strips({strip}, {.x_most = 4, .owners = {"a", "others"}, .tones = {"weights", "KV"}});
  // a: three moments at one height are one rectangle. others: first above a, then at the bottom.
  const std::size_t first = svg.find("<path class='t0'");
  const std::size_t second = svg.find("<path class='t1'");
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(count(svg.substr(first, second - first), "z"), 1U);
  EXPECT_EQ(count(svg.substr(second, svg.find("'>", second) - second), "z"), 2U);
  EXPECT_NE(svg.find("fill:var(--rest)"), std::string::npos);
}

TEST(DrawBars, AreAsLongAsTheirPart) {
  const std::string svg = draw_bars({{.label = "m", .part = 0.5, .note = "half"}}, "bars");
  EXPECT_NE(svg.find("width='89.0'"), std::string::npos) << svg;
}

}  // namespace
}  // namespace heddle::sim
