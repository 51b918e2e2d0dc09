#include "cli/capacity_report.h"

#include <algorithm>
#include <optional>

#include "cli/terminal.h"
#include "sim/print.h"
#include "sim/svg.h"
#include "spec/json_writer.h"

namespace heddle::cli {
namespace {

using sim::print;

std::string percent(double part) {
  return print("%.2f %%", 100 * part);
}

/// It was not replayed to the end.
bool stopped(const PlannedSize& size) {
  return size.replayed < 1;
}

/// Of a part below 1, not rounded up to all.
std::string part_of(double part) {
  return print("%.3g %%", std::min(99.9, 100 * part));
}

std::string seconds(std::optional<Duration> time) {
  return time ? print("%.3g s", to_seconds(*time)) : std::string("none");
}

std::string kind_name(const sim::HostSpec& server) {
  return server.name.empty() ? server.gpu.name : server.name;
}

std::string servers_of(const KindPlan& plan, const PlannedSize& size) {
  return print("%lld %s with %lld %s",
               static_cast<long long>(size.servers),
               size.servers == 1 ? "server" : "servers",
               static_cast<long long>(size.servers * plan.server.gpus),
               plan.server.gpu.name.c_str());
}

double cost(const KindPlan& plan) {
  return static_cast<double>(plan.sizes[*plan.least].servers) * plan.server.price;
}

std::string verdict(const PlannedSize& size, double target) {
  if (stopped(size)) {
    return "too few, known after " + part_of(size.replayed);
  }
  if (size.attainment < target) {
    return "too few";
  }
  if (size.brief) {
    return print("enough, of %lld requests", static_cast<long long>(size.requests));
  }
  return size.bounds.low >= target ? "enough" : "likely enough";
}

std::vector<std::vector<std::string>> table(const KindPlan& plan, double target) {
  std::vector<std::vector<std::string>> rows{
      {"servers", "GPUs", "in time", "95 of 100 times", "TTFT p99", "GPU-hours", ""}};
  for (const PlannedSize& size : plan.sizes) {
    rows.push_back({std::to_string(size.servers),
                    std::to_string(size.servers * plan.server.gpus),
                    percent(size.attainment),
                    percent(size.bounds.low) + " to " + percent(size.bounds.high),
                    print("%.3g s", size.ttft_p99),
                    stopped(size) ? "" : print("%.0f", size.gpu_hours),
                    verdict(size, target)});
  }
  return rows;
}

/// Why no number of servers is enough, as far as the largest tells.
std::vector<std::string> refusal(const KindPlan& plan, double target) {
  const PlannedSize& largest = plan.sizes.back();
  std::vector<std::string> lines{"not enough: even " + servers_of(plan, largest) + " have " +
                                 percent(largest.attainment) + " in time, " + percent(target) +
                                 " are asked for"};
  for (const std::string& model : plan.misfits) {
    lines.push_back("fits no such server: " + model);
  }
  for (const NeverServed& each : largest.unserved) {
    lines.push_back(print("never served: %lld requests of %zu models, such as ",
                          static_cast<long long>(each.requests),
                          each.models.size()) +
                    each.models.front() + ": " + each.why);
  }
  for (const LateModel& late : plan.late) {
    std::string line = late.model + ": " + percent(late.attainment) + " in time";
    if (late.ttft && late.objective.ttft > Duration{} && *late.ttft > late.objective.ttft) {
      line += "; its first token takes " + seconds(late.ttft) + " at best, and is to take " +
              seconds(late.objective.ttft);
    }
    if (late.tpot && late.objective.tpot > Duration{} && *late.tpot > late.objective.tpot) {
      line += "; a token takes " + seconds(late.tpot) + " at best, and is to take " +
              seconds(late.objective.tpot);
    }
    lines.push_back(line);
  }
  return lines;
}

/// What is to be known of a kind beside its table.
std::vector<std::string> findings(const KindPlan& plan, double target) {
  if (!plan.least) {
    return refusal(plan, target);
  }
  const PlannedSize& least = plan.sizes[*plan.least];
  std::vector<std::string> lines{servers_of(plan, least) + " have " + percent(least.attainment) +
                                 " in time"};
  for (const std::string& model : plan.misfits) {
    lines.push_back("fits no such server, and is not served: " + model);
  }
  if (plan.sure && plan.sure != plan.least) {
    lines.push_back("sure with " + servers_of(plan, plan.sizes[*plan.sure]));
  } else if (!plan.sure) {
    lines.push_back("not sure: in other stretches of such days it may be " +
                    percent(least.bounds.low) + "; try --most or a longer trace");
  }
  for (std::size_t i = *plan.least + 1; i < plan.sizes.size(); ++i) {
    if (plan.sizes[i].attainment < target) {
      lines.push_back("more is not better throughout: " + servers_of(plan, plan.sizes[i]) +
                      " have " + percent(plan.sizes[i].attainment));
    }
  }
  if (!plan.reliefs.empty()) {
    const PlannedSize& before = plan.sizes[*plan.least - 1];
    lines.push_back("what lacks with one size less (" + servers_of(plan, before) + ", " +
                    percent(plan.relieved.attainment) +
                    print(" of %lld requests):", static_cast<long long>(plan.relieved.requests)));
    for (const Relief& relief : plan.reliefs) {
      lines.push_back("  " + std::string(relief.what) + ": " + percent(relief.attainment));
    }
  }
  if (plan.server.price > 0) {
    lines.push_back(print("cost: %.2f an hour, %.0f a day", cost(plan), 24 * cost(plan)));
  }
  return lines;
}

/// The best kind and why; nullptr where none is enough.
const KindPlan* best_of(const std::vector<KindPlan>& plans) {
  const bool priced = std::ranges::all_of(
      plans, [](const KindPlan& plan) { return plan.server.price > 0 || !plan.least; });
  const KindPlan* best = nullptr;
  const auto measure = [&](const KindPlan& plan) {
    return priced ? cost(plan)
                  : static_cast<double>(plan.sizes[*plan.least].servers * plan.server.gpus);
  };
  for (const KindPlan& plan : plans) {
    if (plan.least && (best == nullptr || measure(plan) < measure(*best))) {
      best = &plan;
    }
  }
  return best;
}

std::string headline(const CapacityQuestion& question, const CapacityPlans& plans) {
  std::string line =
      print("%lld requests of %zu models in %.1f h, of which %s are to be in time; policy %s",
            static_cast<long long>(question.replay.summary.rows),
            question.replay.summary.models.size(),
            to_seconds(question.replay.summary.span) / 3600,
            percent(question.target).c_str(),
            question.policy.c_str());
  if (!plans.whole) {
    line += print("\neach size is asked for %lld of them, in %zu stretches from all of the time",
                  static_cast<long long>(plans.requests),
                  plans.stretches);
  }
  if (!question.origin.empty()) {
    line += "\n" + question.origin;
  }
  return line;
}

}  // namespace

std::string capacity_text(const CapacityQuestion& question, const CapacityPlans& plans) {
  std::string text = headline(question, plans) + "\n";
  for (const KindPlan& plan : plans.kinds) {
    text += "\n" + kind_name(plan.server) + "\n" + format_table(table(plan, question.target));
    for (const std::string& line : findings(plan, question.target)) {
      text += line + "\n";
    }
  }
  const KindPlan* best = best_of(plans.kinds);
  if (plans.kinds.size() > 1) {
    text += best == nullptr ? "\nno kind of server is enough\n"
                            : "\nbest: " + servers_of(*best, best->sizes[*best->least]) + " (" +
                                  kind_name(best->server) + ")\n";
  }
  return text;
}

std::string capacity_json(const CapacityQuestion& question, const CapacityPlans& plans) {
  spec::JsonWriter json;
  json.begin_object().key("target").number(question.target);
  json.key("requests").integer(question.replay.summary.rows);
  json.key("models").integer(std::ssize(question.replay.summary.models));
  json.key("policy").string(question.policy);
  json.key("replayed_requests").integer(plans.requests);
  json.key("stretches").integer(static_cast<std::int64_t>(plans.stretches));
  json.key("kinds").begin_array();
  for (const KindPlan& plan : plans.kinds) {
    json.begin_object().key("kind").string(kind_name(plan.server));
    json.key("gpu").string(plan.server.gpu.name).key("gpus").integer(plan.server.gpus);
    if (plan.least) {
      json.key("servers").integer(plan.sizes[*plan.least].servers);
    }
    json.key("sizes").begin_array();
    for (const PlannedSize& size : plan.sizes) {
      json.begin_object().key("servers").integer(size.servers);
      json.key("attainment").number(size.attainment);
      json.key("low").number(size.bounds.low).key("high").number(size.bounds.high);
      json.key("ttft_p99").number(size.ttft_p99);
      if (!stopped(size)) {
        json.key("gpu_hours").number(size.gpu_hours);
      }
      json.key("requests").integer(size.requests);
      json.key("replayed").number(size.replayed).end_object();
    }
    json.end_array().key("relieved").begin_object();
    json.key("requests").integer(plan.relieved.requests);
    json.key("attainment").number(plan.relieved.attainment).end_object();
    json.key("with_more").begin_array();
    for (const Relief& relief : plan.reliefs) {
      json.begin_object().key("of").string(relief.what);
      json.key("attainment").number(relief.attainment).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

std::string capacity_html(const CapacityQuestion& question,
                          const CapacityPlans& plans,
                          const std::string& command) {
  std::vector<sim::PlotLine> lines;
  std::string kinds;
  for (const KindPlan& plan : plans.kinds) {
    sim::PlotLine line{.label = kind_name(plan.server)};
    sim::PlotLine low{.label = kind_name(plan.server) + ", lower bound"};
    for (const PlannedSize& size : plan.sizes) {
      const auto gpus = static_cast<double>(size.servers * plan.server.gpus);
      line.points.emplace_back(gpus, 100 * size.attainment);
      low.points.emplace_back(gpus, 100 * size.bounds.low);
    }
    lines.push_back(std::move(line));
    lines.push_back(std::move(low));
    kinds += "<h2>" + sim::escape_html(kind_name(plan.server)) + "</h2>" +
             sim::html_table(table(plan, question.target)) + "<ul>";
    for (const std::string& each : findings(plan, question.target)) {
      kinds += "<li>" + sim::escape_html(each) + "</li>";
    }
    kinds += "</ul>";
    std::vector<sim::PlotBar> bars;
    for (const Relief& relief : plan.reliefs) {
      bars.push_back({.label = std::string(relief.what),
                      .part = relief.attainment,
                      .note = percent(relief.attainment)});
    }
    kinds += bars.empty() ? "" : sim::draw_bars(bars, "In time on one size less, with");
  }
  return "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
         "content='width=device-width,initial-scale=1'><meta name='color-scheme' "
         "content='light dark'><title>heddle plan</title><style>" +
         std::string(sim::plot_style()) +
         "body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60em;padding:1.2em}"
         "td,th{padding:.25em .8em;text-align:right}</style></head><body><h1>heddle plan</h1><p>" +
         sim::escape_html(headline(question, plans)) + "<br><code>" + sim::escape_html(command) +
         "</code></p>" +
         sim::draw_plot(lines,
                        {.title = "Requests in time [%] by number of GPUs",
                         .x_label = "GPUs",
                         .dots = true,
                         .y_most = 100}) +
         kinds + "</body></html>\n";
}

}  // namespace heddle::cli
