#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::sim {

/// A line of a plot, in data coordinates.
struct PlotLine {
  std::string label{};
  std::vector<std::pair<double, double>> points{};
};

/// A value of x that a dashed line marks.
struct PlotMark {
  std::string label{};
  double x = 0;
};

struct PlotOptions {
  std::string title{};
  std::string x_label{};
  bool log_x = false;  ///< Points at x <= 0 are drawn at the left edge.
  bool dots = false;   ///< A dot at every point.
  double y_most = 0;   ///< 0: what the points need.
  std::vector<PlotMark> marks{};
};

/// A plot with axes, grid and legend: a <figure> that takes the width it is given. Its colours are
/// those of plot_style(), so it follows the reader's choice of light or dark. Pictures are
/// functions of their data: the same points give the same bytes.
[[nodiscard]] std::string draw_plot(const std::vector<PlotLine>& lines, const PlotOptions& options);

/// One of the bars of draw_bars(), 0 <= part <= 1.
struct PlotBar {
  std::string label{};
  double part = 0;
  std::string note{};  ///< Beside it.
};
[[nodiscard]] std::string draw_bars(const std::vector<PlotBar>& bars, const std::string& title);

/// A piece of a strip: part of its height, in one colour and tone.
struct StripPiece {
  std::uint16_t owner = 0;  ///< Which of StripOptions::owners.
  std::uint8_t tone = 0;    ///< Which of StripOptions::tones.
  double part = 0;
};

/// Pieces at equally spaced moments, from the bottom up.
struct Strip {
  std::string label{};
  std::vector<std::vector<StripPiece>> moments{};
};

struct StripOptions {
  std::string title{};
  std::string x_label{};
  double x_most = 0;  ///< Of the last moment's end.
  /// The last one is drawn grey: everybody else.
  std::vector<std::string> owners{};
  std::vector<std::string> tones{};  ///< From the strongest to the faintest; at most four.
};

/// Strips below each other on one time axis: who has what part of what, and when.
[[nodiscard]] std::string draw_strips(const std::vector<Strip>& strips,
                                      const StripOptions& options);

/// The style sheet that pictures need, light and dark.
[[nodiscard]] std::string_view plot_style();
/// Lines beyond so many repeat colours.
inline constexpr std::size_t kPlotColours = 8;

/// Text made safe for HTML.
[[nodiscard]] std::string escape_html(const std::string& text);
/// A table whose first row is its head; scrolls where it is too wide.
[[nodiscard]] std::string html_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace heddle::sim
