#include <algorithm>
#include <map>

#include "sim/report.h"
#include "sim/svg.h"

namespace heddle::sim {
namespace {

constexpr std::size_t kCurvePoints = 200;
constexpr std::size_t kGpusShown = 64;
constexpr std::size_t kPairsShown = 25;

constexpr std::string_view kStyle =
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1180px;padding:0 1em;"
    "color:#222}table{border-collapse:collapse;margin:1em 0}td,th{padding:3px "
    "12px;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
    "svg{margin:6px}svg text{font:11px system-ui,sans-serif;fill:#444}svg .title{font-weight:600;"
    "font-size:13px;fill:#111}.grid{stroke:#e3e3e3}h2{margin-top:1.6em}.note{color:#666}";

double seconds(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}

/// Of a sweep, one run per policy: the one at the highest rate; else all.
std::vector<Run> last_of_each(const std::vector<Run>& runs) {
  std::vector<Run> last;
  for (const Run& run : runs) {
    if (!last.empty() && last.back().policy == run.policy) {
      last.back() = run;
    } else {
      last.push_back(run);
    }
  }
  return last;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += "<tr>";
    for (const std::string& cell : rows[i]) {
      const char* tag = i == 0 ? "th" : "td";
      html += std::string("<") + tag + ">" + escape_html(cell) + "</" + tag + ">";
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string cdfs(const std::vector<Run>& runs) {
  std::vector<PlotLine> ttft;
  std::vector<PlotLine> tpot;
  const auto line = [](const Run& run, const std::vector<float>& curve, double unit) {
    PlotLine made{.label = run.policy};
    for (std::size_t i = 0; i < curve.size(); ++i) {
      made.points.emplace_back(static_cast<double>(curve[i]) * unit,
                               static_cast<double>(i) / static_cast<double>(curve.size() - 1));
    }
    return made;
  };
  for (const Run& run : runs) {
    ttft.push_back(line(run, run.results->ttft_curve(kCurvePoints), 1));
    tpot.push_back(line(run, run.results->tpot_curve(kCurvePoints), 1000));
  }
  return draw_plot(ttft,
                   {.title = "Time to first token, part of requests within",
                    .x_label = "seconds",
                    .log_x = true,
                    .y_most = 1}) +
         draw_plot(tpot,
                   {.title = "Time per further token, part of requests within",
                    .x_label = "milliseconds",
                    .log_x = true,
                    .y_most = 1});
}

/// Attainment against rate, where policies were run at several rates.
std::string sweeps(const std::vector<Run>& runs) {
  std::vector<PlotLine> ttft;
  std::vector<PlotLine> tpot;
  std::vector<PlotLine> tail;
  for (const Run& run : runs) {
    if (ttft.empty() || ttft.back().label != run.policy) {
      ttft.push_back({.label = run.policy});
      tpot.push_back({.label = run.policy});
      tail.push_back({.label = run.policy});
    }
    const double rate = run.requests_per_second;
    ttft.back().points.emplace_back(rate, run.results->ttft_attainment());
    tpot.back().points.emplace_back(rate, run.results->tpot_attainment());
    tail.back().points.emplace_back(rate, run.results->ttft().p99);
  }
  if (ttft.size() == runs.size()) {
    return "";
  }
  const std::string x = "requests per second";
  return "<h2>Against rate</h2>" +
         draw_plot(ttft, {.title = "TTFT attainment", .x_label = x, .y_most = 1}) +
         draw_plot(tpot, {.title = "TPOT attainment", .x_label = x, .y_most = 1}) +
         draw_plot(tail, {.title = "P99 of TTFT", .x_label = x, .y_label = "s"});
}

std::string activity(const Run& run) {
  const double width = seconds(run.results->bin_width());
  PlotLine arrivals{.label = "arrivals per second"};
  std::vector<PlotLine> lines{
      {.label = "starts and prewarms"}, {.label = "hits"}, {.label = "evictions"}};
  double at = 0;
  for (const Results::Bin& bin : run.results->bins()) {
    arrivals.points.emplace_back(at, bin.arrivals / width);
    lines[0].points.emplace_back(at, bin.loads);
    lines[1].points.emplace_back(at, bin.hits);
    lines[2].points.emplace_back(at, bin.evictions);
    at += width;
  }
  return draw_plot({arrivals}, {.title = "Load", .x_label = "seconds"}) +
         draw_plot(
             lines,
             {.title = "Loads and hits in " + format_seconds(width) + " s", .x_label = "seconds"});
}

/// One strip per GPU: who owns how many of its pages, over time.
std::string pages(const Run& run) {
  const auto& timeline = run.results->timeline();
  if (timeline.empty()) {
    return "";
  }
  std::string html =
      "<h3>Pages of each GPU by owner</h3><p class='note'>weights serving, weights "
      "warm, KV, guests' KV, other</p>";
  const std::size_t gpus = timeline.front().gpus.size();
  for (std::size_t gpu = 0; gpu < std::min(gpus, kGpusShown); ++gpu) {
    std::vector<PlotLine> lines(5);
    for (const Results::Moment& moment : timeline) {
      const double at = seconds(moment.at.time_since_epoch());
      const PageSample& sample = moment.gpus[gpu];
      lines[0].points.emplace_back(at, sample.weights_active);
      lines[1].points.emplace_back(at, sample.weights_warm);
      lines[2].points.emplace_back(at, sample.kv_own);
      lines[3].points.emplace_back(at, sample.kv_guest);
      lines[4].points.emplace_back(at, sample.other);
    }
    html += draw_plot(lines,
                      {.title = "GPU " + std::to_string(gpu),
                       .y_label = "pages",
                       .stacked = true,
                       .width = 370,
                       .height = 150});
  }
  return gpus > kGpusShown ? html + "<p class='note'>the first " + std::to_string(kGpusShown) +
                                 " of " + std::to_string(gpus) + "</p>"
                           : html;
}

std::string evictions(const ReportHead& head, const Run& run) {
  std::vector<std::pair<std::int64_t, std::pair<ModelId, ModelId>>> pairs;
  for (const auto& [pair, times] : run.results->evicted_for()) {
    pairs.emplace_back(-times, pair);
  }
  if (pairs.empty()) {
    return "";
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.resize(std::min(pairs.size(), kPairsShown));
  std::vector<std::vector<std::string>> rows{{"evicted", "for", "times"}};
  for (const auto& [times, pair] : pairs) {
    rows.push_back({head.models[pair.first.value()],
                    head.models[pair.second.value()],
                    std::to_string(-times)});
  }
  return "<h3>Who was evicted for whom</h3>" + table(rows);
}

std::string reasons(const Run& run) {
  std::vector<std::vector<std::string>> rows{{"action", "reason", "times"}};
  for (const auto& [act, times] : run.results->acts()) {
    rows.push_back({act.first, act.second, std::to_string(times)});
  }
  return rows.size() < 2 ? "" : "<h3>What was done, and why</h3>" + table(rows);
}

}  // namespace

std::string report_html(const ReportHead& head, const std::vector<Run>& runs) {
  std::string html = "<!doctype html><html lang='en'><meta charset='utf-8'><title>" +
                     escape_html(head.title) + "</title><style>" + std::string(kStyle) +
                     "</style><h1>" + escape_html(head.title) + "</h1><p>" +
                     escape_html(head.workload) + "<br>" + escape_html(head.cluster) + "</p>\n";
  for (const std::string& problem : head.problems) {
    html += "<p class='note'>" + escape_html(problem) + "</p>";
  }
  html += table(report_table(runs)) + sweeps(runs) + "<h2>Times</h2>" + cdfs(last_of_each(runs));
  for (const Run& run : last_of_each(runs)) {
    html += "<h2>" + escape_html(run.policy) + "</h2>" + activity(run) + evictions(head, run) +
            reasons(run) + pages(run);
  }
  return html + "</html>\n";
}

}  // namespace heddle::sim
