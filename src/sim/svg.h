#pragma once

#include <string>
#include <utility>
#include <vector>

namespace heddle::sim {

/// A line of a plot, in data coordinates.
struct PlotLine {
  std::string label{};
  std::vector<std::pair<double, double>> points{};
};

struct PlotOptions {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  bool log_x = false;    ///< Points at x <= 0 are drawn at the left edge.
  bool stacked = false;  ///< Areas on top of each other instead of lines.
  double y_most = 0;     ///< 0: what the points need.
  int width = 560;
  int height = 300;
};

/// A plot with axes, grid and legend, as SVG that stands inside HTML. Pictures are functions of
/// their data: the same points give the same bytes.
[[nodiscard]] std::string draw_plot(const std::vector<PlotLine>& lines, const PlotOptions& options);

/// Colour of the i-th line, for other things that stand for the same.
[[nodiscard]] std::string plot_colour(std::size_t index);

/// Text made safe for HTML.
[[nodiscard]] std::string escape_html(const std::string& text);

}  // namespace heddle::sim
