#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "sim/report.h"
#include "sim/svg.h"

namespace heddle::sim {
namespace {

constexpr std::size_t kCurvePoints = 240;
constexpr std::size_t kPairsShown = 25;
constexpr std::size_t kModelsShown = 14;
constexpr std::size_t kMarksMost = 3;

constexpr std::string_view kStyle =
    "*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;"
    "max-width:1240px;padding:1.2em clamp(.8em,3vw,2em) 4em;color:var(--ink);"
    "background:var(--paper)}h1{font-size:1.5em;margin:.2em 0}h2{font-size:1.2em;margin:2em 0 .6em;"
    "border-bottom:1px solid var(--line);padding-bottom:.25em}h3{font-size:1em;margin:0 0 .4em}"
    ".soft{color:var(--soft);overflow-wrap:anywhere}code{font:13px "
    "ui-monospace,monospace;overflow-wrap:anywhere}"
    ".grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));"
    "gap:1em}.card{background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:.8em;min-width:0}.tiles{display:grid;grid-template-columns:repeat(auto-fit,"
    "minmax(140px,1fr));gap:.7em;margin:1em 0}.tile b{display:block;font-size:1.5em;"
    "font-weight:600;line-height:1.25}.scroll{overflow-x:auto}table{border-collapse:collapse;"
    "font-variant-numeric:tabular-nums;font-size:.93em}td,th{padding:.28em .8em;text-align:right;"
    "border-bottom:1px solid var(--line);white-space:nowrap}td:first-child,th:first-child{"
    "text-align:left;position:sticky;left:0;background:var(--paper)}.card td:first-child,"
    ".card th:first-child{background:var(--card)}th{font-weight:600}section{margin-top:1em}";

/// A unit in which so many seconds are a number one likes to read.
struct Unit {
  const char* name;
  double seconds;
};
Unit unit_for(double span) {
  return span > 3 * 86400.0  ? Unit{"days", 86400}
         : span > 3 * 3600.0 ? Unit{"hours", 3600}
         : span > 600        ? Unit{"minutes", 60}
                             : Unit{"seconds", 1};
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

std::string card(const std::string& content) {
  return content.empty() ? "" : "<div class='card'>" + content + "</div>\n";
}

std::string short_percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, part > 0.9995 && part < 1 ? "%.2f %%" : "%.1f %%", 100 * part);
  return text;
}

/// The few numbers one looks at first.
std::string tiles(const Run& run) {
  const Results& results = *run.results;
  const WorldCounts& counts = results.counts();
  const auto tile = [](const std::string& value, const std::string& label) {
    return "<div class='card tile'><b>" + escape_html(value) + "</b><span class='soft'>" +
           escape_html(label) + "</span></div>";
  };
  char gpus[48];
  std::snprintf(gpus,
                sizeof gpus,
                "%.1f of %zu",
                results.gpu_seconds() / std::max(1e-9, to_seconds(results.span())),
                results.gpu_pages().size());
  return "<div class='tiles'>" + tile(short_percent(results.attainment()), "met both objectives") +
         tile(format_seconds(results.ttft().at(0.5)) + " s", "TTFT, median") +
         tile(format_seconds(results.ttft().at(0.99)) + " s", "TTFT, P99") +
         tile(format_seconds(1000 * results.tpot().at(0.99)) + " ms", "TPOT, P99") +
         tile(gpus, "GPUs used, mean") + tile(std::to_string(counts.starts), "loads") +
         tile(std::to_string(counts.evictions), "evictions") + "</div>\n";
}

/// The models' objectives as marks, where they are few.
std::vector<PlotMark> marks(const ReportHead& head, Duration Objective::* which, double unit) {
  std::set<Duration> values;
  for (const Objective& objective : head.objectives) {
    if (objective.*which > Duration{}) {
      values.insert(objective.*which);
    }
  }
  std::vector<PlotMark> made;
  for (const Duration value : values) {
    made.push_back({.label = "SLO", .x = to_seconds(value) * unit});
  }
  return made.size() > kMarksMost ? std::vector<PlotMark>{} : made;
}

std::string cdfs(const ReportHead& head, const std::vector<Run>& runs) {
  std::vector<PlotLine> ttft;
  std::vector<PlotLine> tpot;
  const auto line = [](const Run& run, const Quantiles& quantiles, double unit) {
    PlotLine made{.label = run.policy};
    const std::vector<float> curve = quantiles.curve(kCurvePoints);
    for (std::size_t i = 0; i < curve.size(); ++i) {
      made.points.emplace_back(static_cast<double>(curve[i]) * unit,
                               static_cast<double>(i) / static_cast<double>(curve.size() - 1));
    }
    return made;
  };
  for (const Run& run : runs) {
    ttft.push_back(line(run, run.results->ttft(), 1));
    tpot.push_back(line(run, run.results->tpot(), 1000));
  }
  return card(draw_plot(ttft,
                        {.title = "Time to first token: part of requests within",
                         .x_label = "seconds",
                         .log_x = true,
                         .y_most = 1,
                         .marks = marks(head, &Objective::ttft, 1)})) +
         card(draw_plot(tpot,
                        {.title = "Time per further token: part of requests within",
                         .x_label = "milliseconds",
                         .log_x = true,
                         .y_most = 1,
                         .marks = marks(head, &Objective::tpot, 1000)}));
}

/// Attainment over time, of all runs in one picture.
std::string attainment(const std::vector<Run>& runs) {
  std::vector<PlotLine> lines;
  double span = 0;
  for (const Run& run : runs) {
    span = std::max(span, to_seconds(run.results->span()));
  }
  const Unit unit = unit_for(span);
  for (const Run& run : runs) {
    PlotLine line{.label = run.policy};
    // Groups of bins, so that a point stands for enough requests to mean something.
    constexpr std::size_t kGroups = 60;
    const auto& bins = run.results->bins();
    const std::size_t group = std::max<std::size_t>(1, bins.size() / kGroups);
    const double width = to_seconds(run.results->bin_width()) / unit.seconds;
    for (std::size_t i = 0; i < bins.size(); i += group) {
      double came = 0;
      double met = 0;
      for (std::size_t k = i; k < std::min(bins.size(), i + group); ++k) {
        came += bins[k].arrivals;
        met += bins[k].met;
      }
      if (came > 0) {
        line.points.emplace_back((static_cast<double>(i) + static_cast<double>(group) / 2) * width,
                                 met / came);
      }
    }
    lines.push_back(std::move(line));
  }
  return card(draw_plot(lines,
                        {.title = "Part of requests that met both objectives, by arrival",
                         .x_label = unit.name,
                         .y_most = 1}));
}

/// Curves against the rate, where policies were run at several.
std::string sweeps(const std::vector<Run>& runs) {
  std::vector<PlotLine> both;
  std::vector<PlotLine> median;
  std::vector<PlotLine> tail;
  std::vector<PlotLine> pace;
  for (const Run& run : runs) {
    if (both.empty() || both.back().label != run.policy) {
      for (auto* lines : {&both, &median, &tail, &pace}) {
        lines->push_back({.label = run.policy});
      }
    }
    const double rate = run.requests_per_second;
    both.back().points.emplace_back(rate, run.results->attainment());
    median.back().points.emplace_back(rate, run.results->ttft().at(0.5));
    tail.back().points.emplace_back(rate, run.results->ttft().at(0.99));
    pace.back().points.emplace_back(rate, 1000 * run.results->tpot().at(0.99));
  }
  if (both.size() == runs.size()) {
    return "";
  }
  const std::string x = "requests per second";
  const auto draw = [&x](const std::vector<PlotLine>& lines, const char* title, double most) {
    return card(draw_plot(lines, {.title = title, .x_label = x, .dots = true, .y_most = most}));
  };
  return "<h2>Against the rate</h2><div class='grid2'>" +
         draw(both, "Part of requests that met both objectives", 1) +
         draw(tail, "TTFT, P99 [s]", 0) + draw(median, "TTFT, median [s]", 0) +
         draw(pace, "TPOT, P99 [ms]", 0) + "</div>";
}

std::string activity(const Run& run) {
  constexpr std::size_t kPoints = 120;
  const auto& bins = run.results->bins();
  const std::size_t group = (bins.size() + kPoints - 1) / kPoints;
  const double width = to_seconds(run.results->bin_width()) * static_cast<double>(group);
  const Unit unit = unit_for(to_seconds(run.results->span()));
  PlotLine arrivals{};
  std::vector<PlotLine> lines{{.label = "loads"}, {.label = "hits"}, {.label = "evictions"}};
  double at = width / unit.seconds / 2;
  for (std::size_t i = 0; i < bins.size(); i += group) {
    Results::Bin sum{};
    for (std::size_t k = i; k < std::min(bins.size(), i + group); ++k) {
      sum.arrivals += bins[k].arrivals;
      sum.loads += bins[k].loads;
      sum.hits += bins[k].hits;
      sum.evictions += bins[k].evictions;
    }
    arrivals.points.emplace_back(at, sum.arrivals / width);
    lines[0].points.emplace_back(at, sum.loads);
    lines[1].points.emplace_back(at, sum.hits);
    lines[2].points.emplace_back(at, sum.evictions);
    at += width / unit.seconds;
  }
  return card(draw_plot({arrivals}, {.title = "Requests per second", .x_label = unit.name})) +
         card(draw_plot(lines,
                        {.title = "Loads, hits and evictions in " + format_seconds(width) + " s",
                         .x_label = unit.name}));
}

/// The models whose requests missed their objectives most often.
std::string worst(const ReportHead& head, const Run& run) {
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  const auto& models = run.results->models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (models[i].requests > 0) {
      order.emplace_back(models[i].both_met - models[i].requests, i);
    }
  }
  const bool all = order.size() <= kModelsShown;
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), kModelsShown));
  std::vector<PlotBar> bars;
  for (const auto& [missed, model] : order) {
    const auto requests = static_cast<double>(models[model].requests);
    const double part = static_cast<double>(models[model].both_met) / requests;
    bars.push_back({.label = head.models[model],
                    .part = part,
                    .note = short_percent(part) + " of " + std::to_string(models[model].requests)});
  }
  return card(draw_bars(
      bars,
      all ? "Objectives met, by model"
          : "Objectives met by the " + std::to_string(kModelsShown) + " models with most misses"));
}

/// The models with the most page time, at most as many as there are colours.
std::vector<ModelId> largest_owners(const Results& results) {
  std::map<ModelId, std::int64_t> pages;
  for (const Results::Moment& moment : results.timeline()) {
    for (const auto& gpu : moment.gpus) {
      for (const OwnedPages& owned : gpu) {
        pages[owned.model] += owned.pages;
      }
    }
  }
  std::vector<std::pair<std::int64_t, ModelId>> order;
  for (const auto& [model, count] : pages) {
    order.emplace_back(-count, model);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), kPlotColours));
  std::vector<ModelId> owners;
  for (const auto& [count, model] : order) {
    owners.push_back(model);
  }
  std::sort(owners.begin(), owners.end());
  return owners;
}

/// One strip per GPU: which model owns how many of its pages, and for what, over time.
std::string pages(const ReportHead& head, const Run& run) {
  const Results& results = *run.results;
  const auto& timeline = results.timeline();
  if (timeline.empty()) {
    return "";
  }
  const std::vector<ModelId> owners = largest_owners(results);
  StripOptions options{.title = "Pages of every GPU by owner",
                       .tones = {"weights in use", "KV", "weights kept warm", "overhead"}};
  constexpr std::uint8_t kTones[] = {0, 2, 1, 3};  // By PageUse.
  for (const ModelId model : owners) {
    options.owners.push_back(head.models[model.value()]);
  }
  options.owners.emplace_back("other models");
  const Unit unit = unit_for(to_seconds(results.span()));
  options.x_label = unit.name;
  options.x_most = to_seconds(timeline.back().at.time_since_epoch()) / unit.seconds;
  std::vector<Strip> strips(timeline.front().gpus.size());
  for (std::size_t gpu = 0; gpu < strips.size(); ++gpu) {
    strips[gpu].label = "GPU " + std::to_string(gpu);
    const auto all = static_cast<double>(std::max<std::int64_t>(1, results.gpu_pages()[gpu]));
    for (const Results::Moment& moment : timeline) {
      std::map<std::pair<std::uint16_t, std::uint8_t>, double> parts;
      for (const OwnedPages& owned : moment.gpus[gpu]) {
        const auto at = std::lower_bound(owners.begin(), owners.end(), owned.model);
        const bool shown = at != owners.end() && *at == owned.model;
        const auto owner =
            static_cast<std::uint16_t>(shown ? at - owners.begin() : std::ssize(owners));
        parts[{owner, kTones[static_cast<std::size_t>(owned.use)]}] += owned.pages / all;
      }
      std::vector<StripPiece> pieces;
      for (const auto& [which, part] : parts) {
        pieces.push_back({.owner = which.first, .tone = which.second, .part = part});
      }
      strips[gpu].moments.push_back(std::move(pieces));
    }
  }
  const std::string note = results.gpu_pages().size() > strips.size()
                               ? "<p class='soft'>The first " + std::to_string(strips.size()) +
                                     " of " + std::to_string(results.gpu_pages().size()) +
                                     " GPUs.</p>"
                               : "";
  return card(draw_strips(strips, options) + note);
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
  return card("<h3>Who was evicted for whom</h3>" + html_table(rows));
}

std::string reasons(const Run& run) {
  std::vector<std::vector<std::string>> rows{{"action", "reason", "times"}};
  for (const auto& [act, times] : run.results->acts()) {
    rows.push_back({act.first, act.second, std::to_string(times)});
  }
  return rows.size() < 2 ? "" : card("<h3>What was done, and why</h3>" + html_table(rows));
}

}  // namespace

std::string report_html(const ReportHead& head, const std::vector<Run>& runs) {
  const std::vector<Run> shown = last_of_each(runs);
  std::string html =
      "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width,initial-scale=1'><meta name='color-scheme' "
      "content='light dark'><title>" +
      escape_html(head.title) + "</title><style>" + std::string(plot_style()) +
      std::string(kStyle) + "</style></head><body><h1>" + escape_html(head.title) +
      "</h1><p class='soft'>" + escape_html(head.workload) + "<br>" + escape_html(head.cluster) +
      "<br><code>" + escape_html(head.command) + "</code></p>\n";
  for (const std::string& problem : head.problems) {
    html += "<p class='soft'>" + escape_html(problem) + "</p>";
  }
  html += runs.size() == 1 ? tiles(runs[0]) : "";
  html += sweeps(runs) +
          (runs.size() > shown.size() ? "<h2>Times at the highest rate</h2>" : "<h2>Times</h2>") +
          "<div class='grid2'>" + cdfs(head, shown) + attainment(shown) + "</div><h2>Numbers</h2>" +
          html_table(report_table(runs));
  for (const ReportTable& table : head.tables) {
    html += "<h3>" + escape_html(table.title) + "</h3>" + html_table(table.rows);
  }
  for (const Run& run : shown) {
    html += "<h2>" + escape_html(run.policy) + "</h2>" + (runs.size() > 1 ? tiles(run) : "") +
            pages(head, run) + "<section class='grid2'>" + activity(run) + worst(head, run) +
            evictions(head, run) + reasons(run) + "</section>";
  }
  return html + "</body></html>\n";
}

}  // namespace heddle::sim
