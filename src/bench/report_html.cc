#include <algorithm>
#include <utility>

#include "bench/report.h"
#include "sim/svg.h"

namespace heddle::bench {

using sim::escape_html;
using sim::html_table;
using sim::PlotLine;

namespace {

constexpr std::size_t kCurvePoints = 240;
constexpr std::size_t kModelsShown = 7;  ///< Curves beside that of all.
constexpr std::size_t kBins = 120;

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1240px;padding:1.2em "
    "clamp(.8em,3vw,2em) 4em;color:var(--ink);background:var(--paper)}h1{font-size:1.5em}"
    "h2{font-size:1.2em;border-bottom:1px solid var(--line)}.soft{color:var(--soft)}"
    ".pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:"
    "1em}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.8em;"
    "min-width:0}.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.93em;"
    "font-variant-numeric:tabular-nums}td,th{padding:.28em "
    ".8em;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}td:first-child,th:first-child{text-align:left}";

std::string card(const std::string& content) {
  return "<div class='card'>" + content + "</div>\n";
}

/// The models, and all of them where there are several; the ones with most requests.
std::vector<const Summary*> shown(const Results& results) {
  std::vector<const Summary*> summaries;
  for (const Summary& model : results.models()) {
    summaries.push_back(&model);
  }
  std::sort(summaries.begin(), summaries.end(), [](const Summary* a, const Summary* b) {
    return std::pair(-a->requests, a) < std::pair(-b->requests, b);
  });
  summaries.resize(std::min(summaries.size(), kModelsShown));
  if (results.models().size() > 1) {
    summaries.insert(summaries.begin(), &results.all());
  }
  return summaries;
}

std::string distribution(const Results& results,
                         sim::Quantiles Summary::* which,
                         std::optional<Duration> limit,
                         const std::string& title) {
  std::vector<PlotLine> lines;
  for (const Summary* summary : shown(results)) {
    PlotLine line{.label = summary->model};
    const std::vector<float> curve = (summary->*which).curve(kCurvePoints);
    for (std::size_t i = 0; i < curve.size(); ++i) {
      line.points.emplace_back(static_cast<double>(curve[i]) * 1000,
                               static_cast<double>(i) / static_cast<double>(curve.size() - 1));
    }
    if (!line.points.empty()) {
      lines.push_back(std::move(line));
    }
  }
  sim::PlotOptions options{.title = title, .x_label = "milliseconds", .log_x = true, .y_most = 1};
  if (limit) {
    options.marks.push_back({.label = "SLO", .x = to_seconds(*limit) * 1000});
  }
  return lines.empty() ? "" : card(sim::draw_plot(lines, options));
}

/// What happened in each part of the run.
struct Bins {
  double width = 0;  ///< [s]
  std::vector<double> running = std::vector<double>(kBins);
  std::vector<double> begun = std::vector<double>(kBins);
  std::vector<double> tokens = std::vector<double>(kBins);
};

/// Tokens are spread evenly from the first to the last of a request.
Bins bins_of(const Results& results) {
  Bins bins{.width = std::max(to_seconds(results.span()), 1e-9) / static_cast<double>(kBins)};
  const auto bin = [&](Duration at) {
    return std::min(static_cast<std::size_t>(to_seconds(at) / bins.width), kBins - 1);
  };
  for (const Row& row : results.rows()) {
    bins.begun[bin(row.begun)] += 1;
    for (std::size_t i = bin(row.begun); i <= bin(row.ended); ++i) {
      const double from = std::max(static_cast<double>(i) * bins.width, to_seconds(row.begun));
      const double to = std::min(static_cast<double>(i + 1) * bins.width, to_seconds(row.ended));
      bins.running[i] += std::max(0.0, to - from) / bins.width;
    }
    const std::size_t first = bin(row.first);
    const std::size_t last = std::max(first, bin(row.last));
    for (std::size_t i = first; i <= last && row.first > Duration{}; ++i) {
      bins.tokens[i] +=
          static_cast<double>(row.completion_tokens) / static_cast<double>(last - first + 1);
    }
  }
  return bins;
}

std::string over_time(const std::string& title,
                      const std::string& label,
                      const std::vector<double>& values,
                      double width,
                      double scale) {
  PlotLine line{.label = label};
  for (std::size_t i = 0; i < values.size(); ++i) {
    line.points.emplace_back((static_cast<double>(i) + 0.5) * width, values[i] * scale);
  }
  return card(sim::draw_plot({line}, {.title = title, .x_label = "seconds"}));
}

}  // namespace

std::string report_html(const Results& results, const Circumstances& circumstances) {
  std::string html =
      "<!doctype html><html lang='en'><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>"
      "<title>heddle bench</title><style>";
  html += sim::plot_style();
  html += kStyle;
  html += "</style><h1>heddle bench</h1><p class='soft'>";
  for (const auto& [name, value] : circumstances) {
    html += escape_html(name) + " <b>" + escape_html(value) + "</b> &ensp; ";
  }
  html += "</p>\n<div class='card'>" + html_table(report_table(results));
  for (const std::string& note : report_notes(results)) {
    html += "<p class='soft'>" + escape_html(note) + "</p>";
  }
  html += "</div>\n<h2>Latencies: part of requests within</h2><div class='pictures'>";
  html += distribution(results, &Summary::ttft, results.slo().ttft, "Time to first token");
  html += distribution(results, &Summary::tpot, results.slo().tpot, "Time per further token");
  html += distribution(results, &Summary::itl, std::nullopt, "Between pieces of an answer");
  html += distribution(results, &Summary::latency, std::nullopt, "To the end of the answer");
  const Bins bins = bins_of(results);
  html += "</div><h2>Over time</h2><div class='pictures'>";
  html += over_time("Requests begun a second", "begun", bins.begun, bins.width, 1 / bins.width);
  html += over_time("Requests running", "running", bins.running, bins.width, 1);
  html += over_time("Tokens a second", "tokens", bins.tokens, bins.width, 1 / bins.width);
  return html + "</div></html>\n";
}

}  // namespace heddle::bench
