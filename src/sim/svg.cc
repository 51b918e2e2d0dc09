#include "sim/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/exact_math.h"

namespace heddle::sim {
namespace {

// Dark enough on white, and apart from each other for most colour-blind eyes (Okabe and Ito).
constexpr std::array<const char*, 8> kColours{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d3b"};

constexpr int kLeft = 62;
constexpr int kRight = 12;
constexpr int kTop = 28;
constexpr int kBottom = 44;
constexpr int kLegendRow = 16;

std::string fixed(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string brief(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

/// A step of 1, 2 or 5 times a power of ten that cuts `span` into four to ten parts.
double nice_step(double span) {
  double step = 1;
  while (step * 10 <= span) {
    step *= 10;
  }
  while (step > span) {
    step /= 10;
  }
  return span / step >= 5 ? step : span / step >= 2 ? step / 2 : step / 5;
}

double log10_of(double value) {
  return exact::log(value) / exact::log(10);
}

/// Where data goes on the page.
struct Frame {
  double x_least = 0, x_most = 1, y_most = 1;
  bool log_x = false;
  int width = 0, height = 0;

  [[nodiscard]] double along(double x) const {
    return log_x ? log10_of(std::max(x, exact::pow(10, x_least))) : x;
  }
  [[nodiscard]] double px(double x) const {
    const double part = (along(x) - x_least) / std::max(1e-12, x_most - x_least);
    return kLeft + part * (width - kLeft - kRight);
  }
  [[nodiscard]] double py(double y) const {
    return height - kBottom - y / y_most * (height - kTop - kBottom);
  }
};

Frame frame_of(const std::vector<PlotLine>& lines, const PlotOptions& options) {
  Frame frame{.log_x = options.log_x, .width = options.width, .height = options.height};
  double least = INFINITY;
  double most = -INFINITY;
  double top = options.y_most;
  for (const PlotLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      if (!options.log_x || x > 0) {
        least = std::min(least, x);
        most = std::max(most, x);
      }
      top = options.y_most > 0 ? top : std::max(top, y);
    }
  }
  if (!(least <= most)) {
    least = options.log_x ? 0.1 : 0;
    most = 1;
  }
  frame.x_least = options.log_x ? std::floor(log10_of(least) * 4) / 4 : std::min(least, 0.0);
  frame.x_most = options.log_x ? std::max(frame.x_least + 1, log10_of(most)) : most;
  frame.y_most = top > 0 ? top : 1;
  return frame;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x='" + fixed(x) + "' y='" + fixed(y) + "' text-anchor='" + anchor + "'>" +
         escape_html(text) + "</text>";
}

std::string axes(const Frame& frame, const PlotOptions& options) {
  std::string svg;
  const double step = nice_step(frame.y_most);
  for (double y = 0; y <= frame.y_most * 1.0001; y += step) {
    svg += "<line class='grid' x1='" + std::to_string(kLeft) + "' x2='" +
           std::to_string(frame.width - kRight) + "' y1='" + fixed(frame.py(y)) + "' y2='" +
           fixed(frame.py(y)) + "'/>";
    svg += text_at(kLeft - 6, frame.py(y) + 4, "end", brief(y));
  }
  const double bottom = frame.height - kBottom;
  const auto tick = [&](double x) {
    svg += "<line class='grid' x1='" + fixed(frame.px(x)) + "' x2='" + fixed(frame.px(x)) +
           "' y1='" + std::to_string(kTop) + "' y2='" + fixed(bottom) + "'/>";
    svg += text_at(frame.px(x), bottom + 16, "middle", brief(x));
  };
  if (frame.log_x) {
    for (double decade = std::ceil(frame.x_least); decade <= frame.x_most; decade += 1) {
      tick(exact::pow(10, decade));
    }
  } else {
    const double x_step = nice_step(frame.x_most - frame.x_least);
    for (double x = frame.x_least; x <= frame.x_most * 1.0001; x += x_step) {
      tick(x);
    }
  }
  svg += text_at((kLeft + frame.width - kRight) / 2.0, frame.height - 8, "middle", options.x_label);
  svg +=
      "<text class='title' x='" + std::to_string(kLeft) + "' y='16'>" +
      escape_html(options.title + (options.y_label.empty() ? "" : " [" + options.y_label + "]")) +
      "</text>";
  return svg;
}

std::string polyline(const Frame& frame, const PlotLine& line, std::size_t index) {
  std::string svg =
      "<polyline fill='none' stroke-width='1.6' stroke='" + plot_colour(index) + "' points='";
  for (const auto& [x, y] : line.points) {
    svg += fixed(frame.px(x)) + "," + fixed(frame.py(std::min(y, frame.y_most))) + " ";
  }
  return svg + "'/>";
}

/// The area between a line's values and those below it.
std::string area(const Frame& frame,
                 const PlotLine& line,
                 std::vector<double>& below,
                 std::size_t index) {
  below.resize(std::max(below.size(), line.points.size()), 0);
  std::string svg = "<polygon stroke='none' fill='" + plot_colour(index) + "' points='";
  std::string back;
  for (std::size_t i = 0; i < line.points.size(); ++i) {
    const auto& [x, y] = line.points[i];
    back = fixed(frame.px(x)) + "," + fixed(frame.py(below[i])) + " " + back;
    below[i] += y;
    svg += fixed(frame.px(x)) + "," + fixed(frame.py(std::min(below[i], frame.y_most))) + " ";
  }
  return svg + back + "'/>";
}

std::string legend(const std::vector<PlotLine>& lines, int top) {
  std::string svg;
  int y = top;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].label.empty()) {
      svg += "<rect x='" + std::to_string(kLeft) + "' y='" + std::to_string(y) +
             "' width='10' height='10' fill='" + plot_colour(i) + "'/>";
      svg += text_at(kLeft + 15, y + 9, "start", lines[i].label);
      y += kLegendRow;
    }
  }
  return svg;
}

}  // namespace

std::string plot_colour(std::size_t index) {
  return kColours.at(index % kColours.size());
}

std::string escape_html(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string draw_plot(const std::vector<PlotLine>& lines, const PlotOptions& options) {
  const Frame frame = frame_of(lines, options);
  const auto labelled = std::count_if(
      lines.begin(), lines.end(), [](const PlotLine& line) { return !line.label.empty(); });
  const int height = options.height + static_cast<int>(labelled) * kLegendRow;
  std::string svg = "<svg width='" + std::to_string(options.width) + "' height='" +
                    std::to_string(height) + "' role='img'>";
  std::vector<double> below;
  std::string drawn;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    drawn += options.stacked ? area(frame, lines[i], below, i) : polyline(frame, lines[i], i);
  }
  svg += options.stacked ? drawn + axes(frame, options) : axes(frame, options) + drawn;
  return svg + legend(lines, options.height) + "</svg>\n";
}

}  // namespace heddle::sim
