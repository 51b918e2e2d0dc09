#include "sim/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/exact_math.h"

namespace heddle::sim {
namespace {

constexpr int kWidth = 420;
constexpr int kHeight = 240;
constexpr int kLeft = 46;
constexpr int kRight = 14;
constexpr int kTop = 10;
constexpr int kBottom = 40;

constexpr int kStripsWidth = 1120;
constexpr int kStripHeight = 34;
constexpr int kStripGap = 5;
constexpr int kStripLeft = 70;

constexpr std::string_view kSvgStyle =
    ":root{--ink:#1d2530;--soft:#5b6675;--line:#dfe4ea;--paper:#fff;--card:#f6f8fa;--good:#14855f;"
    "--c0:#2f6fde;--c1:#e06c00;--c2:#14855f;--c3:#b6439f;--c4:#8a6d00;--c5:#0e8fb0;--c6:#d03a3a;"
    "--c7:#6b55c9;--rest:#9aa4b1}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa7b8;--line:#2c3542;"
    "--paper:#11161d;--card:#19202a;--good:#3fc79a;--c0:#6ea2ff;--c1:#ff9a4d;--c2:#3fc79a;"
    "--c3:#e58bd3;--c4:#d9b64a;--c5:#4cc4e4;--c6:#ff7d7d;--c7:#a695ff;--rest:#6b7686}}"
    "figure{margin:0;min-width:0}figcaption{font-weight:600;margin:0 0 .2em}"
    ".keys{font-weight:400;font-size:.86em;color:var(--soft);display:flex;flex-wrap:wrap;"
    "gap:.1em 1em}.keys i{display:inline-block;width:.8em;height:.8em;border-radius:2px;"
    "margin-right:.4em;vertical-align:-.06em}"
    "svg{display:block;width:100%;height:auto}svg text{font:12px system-ui,sans-serif;"
    "fill:var(--soft)}.grid{stroke:var(--line)}.mark{stroke:var(--soft);stroke-dasharray:4 3}.keys "
    ".dash{background:none!important;border-top:2px dashed var(--soft);height:0;"
    "vertical-align:.25em;border-radius:0}"
    ".wide{overflow-x:auto}.wide svg{min-width:760px}.lines polyline{fill:none;stroke-width:2;"
    "stroke-linejoin:round}.t1{opacity:.62}.t2{opacity:.34}.t3{opacity:.18}";

std::string fixed(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string brief(double value) {
  std::array<char, 40> text{};
  if (value >= 1000 && value < 1e6) {
    std::snprintf(text.data(), text.size(), "%.0f", value);
  } else {
    std::snprintf(text.data(), text.size(), "%.3g", std::abs(value) < 1e-12 ? 0 : value);
  }
  return text.data();
}

std::string colour(std::size_t index) {
  return "var(--c" + std::to_string(index % kPlotColours) + ")";
}

/// A step of 1, 2 or 5 times a power of ten that cuts `span` into about five parts.
double nice_step(double span) {
  double power = 1;
  while (power * 10 <= span) {
    power *= 10;
  }
  while (power > span) {
    power /= 10;
  }
  const double parts = span / power;
  return parts > 6 ? 2 * power : parts > 3 ? power : parts > 1.5 ? power / 2 : power / 5;
}

double log10_of(double value) {
  return exact::log(value) / exact::log(10);
}

/// Where data goes on the page.
struct Frame {
  double x_least = 0, x_most = 1, y_most = 1;
  bool log_x = false;

  [[nodiscard]] double px(double x) const {
    const double along = log_x ? (x > 0 ? std::max(log10_of(x), x_least) : x_least) : x;
    const double part = (along - x_least) / std::max(1e-12, x_most - x_least);
    return kLeft + part * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double py(double y) const {
    return kHeight - kBottom - std::min(y / y_most, 1.0) * (kHeight - kTop - kBottom);
  }
};

Frame frame_of(const std::vector<PlotLine>& lines, const PlotOptions& options) {
  Frame frame{.log_x = options.log_x};
  double least = INFINITY;
  double most = -INFINITY;
  double top = options.y_most;
  for (const PlotLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      if (!options.log_x || x > 0) {
        least = std::min(least, x);
        most = std::max(most, x);
      }
      top = options.y_most > 0 ? top : std::max(top, y * 1.05);
    }
  }
  if (!(least <= most)) {
    least = options.log_x ? 0.1 : 0;
    most = 1;
  }
  frame.x_least = options.log_x ? std::floor(log10_of(least) * 2) / 2 : least < most ? least : 0;
  frame.x_most = options.log_x ? std::max(frame.x_least + 1, log10_of(most)) : most;
  frame.y_most = top > 0 ? top : 1;
  return frame;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x='" + fixed(x) + "' y='" + fixed(y) + "' text-anchor='" + anchor + "'>" +
         escape_html(text) + "</text>";
}

std::string segment(const char* kind, double x1, double y1, double x2, double y2) {
  return std::string("<line class='") + kind + "' x1='" + fixed(x1) + "' y1='" + fixed(y1) +
         "' x2='" + fixed(x2) + "' y2='" + fixed(y2) + "'/>";
}

std::string axes(const Frame& frame, const PlotOptions& options) {
  std::string svg;
  const double step = nice_step(frame.y_most);
  for (double y = 0; y <= frame.y_most * 1.0001; y += step) {
    svg += segment("grid", kLeft, frame.py(y), kWidth - kRight, frame.py(y));
    svg += text_at(kLeft - 6, frame.py(y) + 4, "end", brief(y));
  }
  const double bottom = kHeight - kBottom;
  const auto tick = [&](double x, bool labelled) {
    svg += segment("grid", frame.px(x), kTop, frame.px(x), bottom);
    svg += labelled ? text_at(frame.px(x), bottom + 15, "middle", brief(x)) : "";
  };
  if (frame.log_x) {
    const bool wide = frame.x_most - frame.x_least > 2.5;
    for (double decade = std::floor(frame.x_least); decade <= frame.x_most; decade += 1) {
      for (const double times : {1.0, 2.0, 5.0}) {
        const double x = exact::pow(10, decade) * times;
        const double along = log10_of(x);
        if (along >= frame.x_least - 1e-9 && along <= frame.x_most + 1e-9) {
          tick(x, times == 1.0 || !wide);
        }
      }
    }
  } else {
    const double x_step = nice_step(frame.x_most - frame.x_least);
    for (double x = std::ceil(frame.x_least / x_step - 1e-9) * x_step;
         x <= frame.x_most + x_step * 1e-6;
         x += x_step) {
      tick(x, true);
    }
  }
  return svg + text_at((kLeft + kWidth - kRight) / 2.0, kHeight - 6, "middle", options.x_label);
}

std::string polyline(const Frame& frame, const PlotLine& line, std::size_t index, bool dots) {
  std::string svg = "<polyline style='stroke:" + colour(index) + "' points='";
  std::string marks;
  std::string before;
  for (const auto& [x, y] : line.points) {
    const std::string at = fixed(frame.px(x)) + "," + fixed(frame.py(y));
    if (at != before) {
      svg += (before.empty() ? "" : " ") + at;
    }
    before = at;
    if (dots) {
      marks += "<circle r='3' cx='" + fixed(frame.px(x)) + "' cy='" + fixed(frame.py(y)) +
               "' style='fill:" + colour(index) + "'><title>" + escape_html(line.label) + ": " +
               brief(x) + ", " + brief(y) + "</title></circle>";
    }
  }
  return svg + "'/>" + marks;
}

std::string key(const std::string& background, const std::string& label, const char* tone = "") {
  return "<span><i class='" + std::string(tone) + "' style='background:" + background + "'></i>" +
         escape_html(label) + "</span>";
}

/// Pieces of one owner and tone as one path, one rectangle after the other.
using Paths = std::map<std::pair<std::uint16_t, std::uint8_t>, std::string>;

/// Draws a strip from the top `y` down; equal pieces of neighbouring moments become one rectangle.
void add_strip(Paths& paths, const Strip& strip, double y, double width) {
  struct Rectangle {
    int from = 0;  ///< In half pixels from the bottom of the strip.
    int to = 0;
    bool operator==(const Rectangle&) const = default;
  };
  using Column = std::map<std::pair<std::uint16_t, std::uint8_t>, Rectangle>;
  Column open;
  std::map<std::pair<std::uint16_t, std::uint8_t>, std::size_t> since;
  const auto close = [&](const Column::value_type& piece, std::size_t end) {
    const double left = kStripLeft + static_cast<double>(since.at(piece.first)) * width;
    const double wide = static_cast<double>(end - since.at(piece.first)) * width;
    const double tall = (piece.second.to - piece.second.from) / 2.0;
    paths[piece.first] += "M" + fixed(left) + " " +
                          fixed(y + kStripHeight - piece.second.to / 2.0) + "h" + fixed(wide) +
                          "v" + fixed(tall) + "h-" + fixed(wide) + "z";
  };
  for (std::size_t i = 0; i <= strip.moments.size(); ++i) {
    Column column;
    double below = 0;
    for (std::size_t k = 0; i < strip.moments.size() && k < strip.moments[i].size(); ++k) {
      const StripPiece& piece = strip.moments[i][k];
      const auto pixels = [](double part) {
        return static_cast<int>(std::lround(std::min(part, 1.0) * 2 * kStripHeight));
      };
      const Rectangle made{.from = pixels(below), .to = pixels(below + piece.part)};
      below += piece.part;
      if (made.to > made.from) {
        const auto [at, fresh] = column.try_emplace({piece.owner, piece.tone}, made);
        at->second.to = fresh ? at->second.to : made.to;
      }
    }
    for (const auto& piece : open) {
      const auto now = column.find(piece.first);
      if (now == column.end() || now->second != piece.second) {
        close(piece, i);
        since.erase(piece.first);
      }
    }
    for (const auto& piece : column) {
      since.try_emplace(piece.first, i);
    }
    open = std::move(column);
  }
}

}  // namespace

std::string_view plot_style() {
  return kSvgStyle;
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
  std::string html = "<figure><figcaption>" + escape_html(options.title) + "<div class='keys'>";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    html += lines[i].label.empty() ? "" : key(colour(i), lines[i].label);
  }
  html += options.marks.empty() ? "" : key("none", options.marks[0].label, "dash");
  html += "</div></figcaption><svg class='lines' viewBox='0 0 " + std::to_string(kWidth) + " " +
          std::to_string(kHeight) + "' role='img' aria-label='" + escape_html(options.title) +
          "'>" + axes(frame, options);
  for (const PlotMark& mark : options.marks) {
    const double x = frame.px(mark.x);
    if (x < kWidth - kRight) {
      html += segment("mark", x, kTop, x, kHeight - kBottom);
    }
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    html += polyline(frame, lines[i], i, options.dots);
  }
  return html + "</svg></figure>\n";
}

std::string draw_bars(const std::vector<PlotBar>& bars, const std::string& title) {
  constexpr int kRow = 19;
  constexpr int kLabels = 120;
  constexpr int kNotes = 122;
  const int height = static_cast<int>(bars.size()) * kRow + 6;
  std::string html = "<figure><figcaption>" + escape_html(title) +
                     "</figcaption><svg viewBox='0 0 " + std::to_string(kWidth) + " " +
                     std::to_string(height) + "' role='img' aria-label='" + escape_html(title) +
                     "'>";
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const int y = static_cast<int>(i) * kRow + 3;
    const double full = kWidth - kLabels - kNotes;
    const std::string corner = "' y='" + std::to_string(y) + "' height='13' rx='2' width='";
    html += text_at(kLabels - 8, y + 11, "end", bars[i].label);
    html += "<rect style='fill:var(--line)' x='" + std::to_string(kLabels) + corner + fixed(full) +
            "'/><rect style='fill:var(--c0)' x='" + std::to_string(kLabels) + corner +
            fixed(full * std::clamp(bars[i].part, 0.0, 1.0)) + "'/>";
    html += text_at(kLabels + full + 8, y + 11, "start", bars[i].note);
  }
  return html + "</svg></figure>\n";
}

std::string draw_strips(const std::vector<Strip>& strips, const StripOptions& options) {
  const double right = kStripsWidth - kRight;
  const int bottom = kTop + static_cast<int>(strips.size()) * (kStripHeight + kStripGap);
  std::string html = "<figure><figcaption>" + escape_html(options.title) + "<div class='keys'>";
  const auto of_owner = [&](std::size_t owner) {
    return owner + 1 == options.owners.size() ? std::string("var(--rest)") : colour(owner);
  };
  for (std::size_t i = 0; i < options.owners.size(); ++i) {
    html += key(of_owner(i), options.owners[i]);
  }
  html += "</div><div class='keys'>";
  constexpr std::array kTones{"t0", "t1", "t2", "t3"};
  for (std::size_t i = 0; i < options.tones.size(); ++i) {
    html += key("var(--soft)", options.tones[i], kTones.at(i));
  }
  html += "</div></figcaption><div class='wide'><svg viewBox='0 0 " + std::to_string(kStripsWidth) +
          " " + std::to_string(bottom + kBottom) + "' role='img' aria-label='" +
          escape_html(options.title) + "'>";
  Paths paths;
  for (std::size_t i = 0; i < strips.size(); ++i) {
    const double y = kTop + static_cast<double>(i) * (kStripHeight + kStripGap);
    const auto count = static_cast<double>(std::max<std::size_t>(1, strips[i].moments.size()));
    html += "<rect style='fill:var(--card)' x='" + std::to_string(kStripLeft) + "' y='" + fixed(y) +
            "' width='" + fixed(right - kStripLeft) + "' height='" + std::to_string(kStripHeight) +
            "'/>";
    html += text_at(kStripLeft - 8, y + kStripHeight / 2.0 + 4, "end", strips[i].label);
    add_strip(paths, strips[i], y, (right - kStripLeft) / count);
  }
  for (const auto& [piece, path] : paths) {
    html += std::string("<path class='") + kTones.at(piece.second) +
            "' style='fill:" + of_owner(piece.first) + "' d='" + path + "'><title>" +
            escape_html(options.owners[piece.first]) + ", " +
            escape_html(options.tones[piece.second]) + "</title></path>";
  }
  const double step = options.x_most > 0 ? nice_step(options.x_most) : 1;
  for (double x = 0; x <= options.x_most * 1.0001; x += step) {
    const double at = kStripLeft + x / std::max(1e-12, options.x_most) * (right - kStripLeft);
    html += segment("grid", at, bottom - kStripGap, at, bottom) +
            text_at(at, bottom + 13, "middle", brief(x));
  }
  return html + text_at((kStripLeft + right) / 2, bottom + 32, "middle", options.x_label) +
         "</svg></div></figure>\n";
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class='scroll'><table>";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += "<tr>";
    for (const std::string& cell : rows[i]) {
      const char* tag = i == 0 ? "th" : "td";
      html += std::string("<") + tag + ">" + escape_html(cell) + "</" + tag + ">";
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace heddle::sim
