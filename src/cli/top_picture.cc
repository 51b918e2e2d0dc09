#include "cli/top_picture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "cli/pool_picture.h"
#include "cli/terminal.h"
#include "spec/json_view.h"

namespace heddle::cli {
namespace {

using spec::items_at;
using spec::Json;
using spec::number_at;
using spec::text_at;

/// Neither narrower nor lower is drawn: a terminal cuts it.
constexpr std::size_t kColumnsLeast = 40;
constexpr std::size_t kRowsLeast = 8;
constexpr std::size_t kBarLeast = 10;
/// Of a terminal's rows decisions and requests get so many, the models the rest.
constexpr std::size_t kDecisionsShare = 5;
constexpr std::size_t kRequestsShare = 5;

std::string bytes(double count) {
  return format_bytes(static_cast<std::uint64_t>(std::max(0.0, count)));
}

std::string count(double number) {
  return std::to_string(std::llround(number));
}

std::string span(double milliseconds) {
  return format_duration(Duration(static_cast<std::int64_t>(milliseconds * 1e6)));
}

/// What may stand in one line of a terminal.
std::string one_line(const std::string& text) {
  std::string line = printable(text);
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

bool is_true(const Json& json, spec::JsonPath path) {
  const bool* found = spec::value_at<bool>(json, path);
  return found != nullptr && *found;
}

/// What the longest choice of a request spent in a phase [ms].
double phase(const Json& request, std::string_view name) {
  const Json* longest = nullptr;
  for (const Json& part : items_at(request, {"parts"})) {
    const double total = number_at(part, {"phases", "total_ms"});
    if (longest == nullptr || total > number_at(*longest, {"phases", "total_ms"})) {
      longest = &part;
    }
  }
  return longest == nullptr ? 0 : number_at(*longest, {"phases", name});
}

double sum_of_parts(const Json& request, std::string_view name) {
  double sum = 0;
  for (const Json& part : items_at(request, {"parts"})) {
    sum += number_at(part, {name});
  }
  return sum;
}

/// "3 running, 20 came in the last minute; first token 31.0 ms, 95th percentile 210 ms".
std::string summary(const TopAnswers& answers) {
  std::int64_t running = 0;
  std::int64_t lately = 0;
  std::vector<double> first;
  for (const Json& request : items_at(answers.requests, {"requests"})) {
    const double age = static_cast<double>(answers.now_ms) - number_at(request, {"arrived_ms"});
    running += is_true(request, {"running"}) ? 1 : 0;
    lately += age < 60'000 ? 1 : 0;
    if (!is_true(request, {"running"}) && number_at(request, {"status"}) < 400 &&
        !items_at(request, {"parts"}).empty()) {
      first.push_back(phase(request, "queue_ms") + phase(request, "load_ms") +
                      phase(request, "prefill_ms"));
    }
  }
  std::string text =
      std::to_string(running) + " running, " + std::to_string(lately) + " came in the last minute";
  if (!first.empty()) {
    std::sort(first.begin(), first.end());
    const auto at = [&](std::size_t percent) {
      return span(first[std::min(first.size() - 1, percent * first.size() / 100)]);
    };
    text += "; first token " + at(50) + ", 95th percentile " + at(95);
  }
  return text;
}

/// ", adapters sql, support of 3.00 MiB": those that are there; of many how many.
std::string describe_adapters(const Json& pool, double page_bytes) {
  constexpr std::int64_t kNamed = 2;
  std::string names;
  std::int64_t here = 0;
  double pages = 0;
  for (const Json& adapter : items_at(pool, {"adapters"})) {
    if (const double held = number_at(adapter, {"pages"}); held > 0) {
      names += (here++ > 0 ? ", " : " ") + one_line(text_at(adapter, {"name"}));
      pages += held;
    }
  }
  if (here == 0) {
    return {};
  }
  const std::string which = here > kNamed ? std::to_string(here) + " adapters" : "adapters" + names;
  return ", " + which + " of " + bytes(pages * page_bytes);
}

/// What of a pool a request may have, and who else is there.
std::string describe_pool(const Json& pool, double page_bytes) {
  const bool* up = spec::value_at<bool>(pool, {"up"});
  if (up != nullptr && !*up) {
    return "down, is being restarted";
  }
  const double cached = number_at(pool, {"pages", "kv_cached", "held"});
  std::string text = bytes((number_at(pool, {"pages_free"}) + cached) * page_bytes) + " of " +
                     bytes(number_at(pool, {"pages_total"}) * page_bytes) + " free";
  text += describe_adapters(pool, page_bytes);
  if (const double others = number_at(pool, {"others_bytes"}); others > 0) {
    text += ", " + bytes(others) + " held by other programs";
  }
  return text;
}

/// "fetching 1.00 MiB of 1.35 MiB", or the state with how much of a load is done.
std::string state_of(const Json& model) {
  if (is_true(model, {"status", "failed"})) {
    return "failed";
  }
  if (number_at(model, {"status", "fetch", "total_bytes"}) > 0) {
    return "fetching " + bytes(number_at(model, {"status", "fetch", "bytes"})) + " of " +
           bytes(number_at(model, {"status", "fetch", "total_bytes"}));
  }
  const std::string residency = text_at(model, {"status", "residency"});
  const std::string state = residency.empty() ? text_at(model, {"status", "value"}) : residency;
  const Json* progress = spec::value_at(model, {"status", "progress"});
  return progress == nullptr || progress->is_null()
             ? state
             : state + " " + std::to_string(std::lround(100 * number_at(*progress, {}))) + " %";
}

/// "350 ms, queue 10 ms, load 300 ms, prefill 20 ms, decode 20 ms; 12 + 30 tokens".
std::string outcome_of(const Json& request, std::int64_t now_ms) {
  if (is_true(request, {"running"})) {
    const double since = static_cast<double>(now_ms) - number_at(request, {"arrived_ms"});
    return "runs for " + span(std::max(0.0, since));
  }
  if (number_at(request, {"status"}) >= 400) {
    return text_at(request, {"status"}) + " " + text_at(request, {"error"});
  }
  std::string text = span(phase(request, "total_ms"));
  for (const char* name : {"queue", "load", "prefill", "decode"}) {
    if (const double ms = phase(request, std::string(name) + "_ms"); ms > 0) {
      text += std::string(", ") + name + " " + span(ms);
    }
  }
  return text + "; " + count(sum_of_parts(request, "prompt_tokens")) + " + " +
         count(sum_of_parts(request, "completion_tokens")) + " tokens";
}

/// "2.00 s ago: evict morse on cpu0 for adder: displaced".
std::string describe_decision(const Json& decision) {
  const std::string device = text_at(decision, {"device"});
  const std::string wanted = text_at(decision, {"for"});
  return span(number_at(decision, {"age_ms"})) + " ago: " + text_at(decision, {"decision"}) + " " +
         text_at(decision, {"model"}) + (device.empty() ? "" : " on " + device) +
         (wanted.empty() ? "" : " for " + wanted) + ": " + text_at(decision, {"why"});
}

class Picture {
 public:
  Picture(const TopAnswers& answers, const TopSize& size, bool colours)
      : answers_(answers),
        columns_(std::max(size.columns, kColumnsLeast)),
        rows_(std::max(size.rows, kRowsLeast)),
        colours_(colours) {
    std::vector<std::string> names;
    for (const Json& model : items_at(answers.models, {"data"})) {
      names.push_back(text_at(model, {"id"}));
    }
    marks_ = model_marks(names);
    for (const Json& each : items_at(answers.running, {"running"})) {
      running_[text_at(each, {"model"})] = &each;
    }
    for (const Json& each : items_at(answers.forecasts, {"models"})) {
      forecasts_[text_at(each, {"model"})] = &each;
    }
  }

  std::string draw() {
    say("heddle at " + answers_.server, "\x1b[1m");
    say(summary(answers_));
    if (!answers_.trouble.empty()) {
      say(answers_.trouble, "\x1b[31m");
    }
    pools();
    const std::size_t decisions = std::max<std::size_t>(rows_ / kDecisionsShare, 1);
    const std::size_t requests = std::max<std::size_t>(rows_ / kRequestsShare, 1);
    const std::size_t below = decisions + requests + 4;  // And their heads.
    models(rows_ > lines_ + below ? rows_ - lines_ - below : 1);
    lately("DECISIONS", decision_lines(), decisions);
    lately("REQUESTS", request_lines(), requests);
    return std::move(text_);
  }

 private:
  void say(const std::string& line, const char* mark = "") {
    if (lines_ == rows_) {
      return;
    }
    ++lines_;
    const std::string shown = cut_to_width(one_line(line), columns_);
    const bool marked = colours_ && *mark != '\0';
    text_ += marked ? mark + shown + "\x1b[0m\n" : shown + "\n";
  }

  void pools() {
    std::vector<std::pair<std::string, const Json*>> pools;
    double page_bytes = 0;
    for (const Json& device : items_at(answers_.devices, {"devices"})) {
      pools.emplace_back(one_line(text_at(device, {"name"})), &device);
      page_bytes = std::max(page_bytes, number_at(device, {"page_bytes"}));
    }
    const Json* host = spec::value_at(answers_.devices, {"host"});
    if (host != nullptr && number_at(*host, {"pages_total"}) > 0) {
      pools.emplace_back("host", host);
    }
    std::size_t width = 0;
    for (auto& [name, pool] : pools) {
      name = cut_to_width(name, columns_ / 3);
      width = std::max(width, name.size());
    }
    for (const auto& [name, pool] : pools) {
      if (lines_ + 1 >= rows_) {
        return;
      }
      const std::string head = name + std::string(width - name.size() + 1, ' ') + "[";
      const std::string tail = "] " + describe_pool(*pool, page_bytes);
      const std::size_t around = head.size() + tail.size();
      const std::size_t bar = std::max(columns_, around + kBarLeast) - around;
      text_ += head + draw_pool(*pool, marks_, bar, colours_) +
               cut_to_width(tail, columns_ - head.size() - bar) + "\n";
      ++lines_;
    }
    if (!pools.empty()) {
      say("capitals: weights, small letters: KV, =: cached prefixes, i: images, #: other, .: free",
          "\x1b[2m");
    }
  }

  std::vector<std::string> model_row(const Json& model) const {
    const std::string id = text_at(model, {"id"});
    const auto running = running_.find(id);
    const auto forecast = forecasts_.find(id);
    const auto of = [](const auto& map, const auto& found, spec::JsonPath path) {
      return found == map.end() ? 0.0 : number_at(*found->second, path);
    };
    std::string expected;
    std::string starts;
    if (forecast != forecasts_.end()) {
      char text[48];
      std::snprintf(text,
                    sizeof text,
                    "%.1f / %.0f",
                    of(forecasts_, forecast, {"expected_mean"}),
                    of(forecasts_, forecast, {"expected_peak"}));
      expected = text;
      for (const char* kind : {"warm", "hit", "attach", "miss"}) {
        starts += (starts.empty() ? "" : " / ") + count(of(forecasts_, forecast, {"starts", kind}));
      }
    }
    return {std::string(1, marks_.at(id).letter),
            one_line(id),
            one_line(state_of(model)),
            one_line(text_at(model, {"status", "device"})),
            bytes(of(running_, running, {"bytes"})),
            count(of(running_, running, {"requests_running"})),
            count(of(running_, running, {"requests_waiting"})),
            expected,
            starts};
  }

  /// Lower: shown sooner.
  int place_of(const Json& model) const {
    const auto running = running_.find(text_at(model, {"id"}));
    if (running != running_.end()) {
      const double asked = number_at(*running->second, {"requests_running"}) +
                           number_at(*running->second, {"requests_waiting"});
      return asked > 0 ? 0 : 1;
    }
    return 2;
  }

  void models(std::size_t rows) {
    std::vector<std::pair<int, const Json*>> order;
    for (const Json& model : items_at(answers_.models, {"data"})) {
      order.emplace_back(place_of(model), &model);
    }
    // Models of one place stay in the server's order: addresses within one list ascend.
    std::sort(order.begin(), order.end());
    std::vector<std::vector<std::string>> table{{"",
                                                 "MODEL",
                                                 "STATE",
                                                 "DEVICE",
                                                 "WEIGHTS",
                                                 "RUNNING",
                                                 "WAITING",
                                                 "EXPECTED",
                                                 "WARM / HIT / ATTACH / MISS"}};
    const std::size_t shown =
        order.size() <= rows ? order.size() : std::max<std::size_t>(rows, 2) - 1;
    for (std::size_t i = 0; i < shown; ++i) {
      table.push_back(model_row(*order[i].second));
    }
    say("");
    const std::string lines = format_table(table);
    std::size_t at = 0;
    for (std::size_t i = 0; at < lines.size(); ++i) {
      const std::size_t end = lines.find('\n', at);
      const std::string mark =
          i == 0 ? "\x1b[1m" : "\x1b[38;5;" + std::to_string(colour_of(*order[i - 1].second)) + "m";
      say(lines.substr(at, end - at), mark.c_str());
      at = end + 1;
    }
    if (shown < order.size()) {
      say("   and " + std::to_string(order.size() - shown) + " more; heddle list has all");
    }
  }

  int colour_of(const Json& model) const { return marks_.at(text_at(model, {"id"})).colour; }

  /// Latest first.
  std::vector<std::string> decision_lines() const {
    const Json::Array& decisions = items_at(answers_.decisions, {"decisions"});
    std::vector<std::string> lines;
    for (auto each = decisions.rbegin(); each != decisions.rend(); ++each) {
      lines.push_back(describe_decision(*each));
    }
    return lines;
  }

  /// Latest first, as the server tells them.
  std::vector<std::string> request_lines() const {
    std::vector<std::string> lines;
    for (const Json& request : items_at(answers_.requests, {"requests"})) {
      lines.push_back(text_at(request, {"model"}) + ": " + outcome_of(request, answers_.now_ms));
    }
    return lines;
  }

  void lately(const char* head, const std::vector<std::string>& lines, std::size_t rows) {
    if (lines.empty()) {
      return;
    }
    say("");
    say(head, "\x1b[1m");
    for (std::size_t i = 0; i < std::min(rows, lines.size()); ++i) {
      say(lines[i]);
    }
  }

  const TopAnswers& answers_;
  std::size_t columns_;
  std::size_t rows_;
  bool colours_;
  ModelMarks marks_{};
  std::map<std::string, const Json*> running_{};
  std::map<std::string, const Json*> forecasts_{};
  std::string text_{};
  std::size_t lines_ = 0;
};

}  // namespace

std::string draw_top(const TopAnswers& answers, const TopSize& size, bool colours) {
  return Picture(answers, size, colours).draw();
}

}  // namespace heddle::cli
