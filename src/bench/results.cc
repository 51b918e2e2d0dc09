#include "bench/results.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace heddle::bench {

namespace {

constexpr std::size_t kErrorsMost = 20;
constexpr std::size_t kErrorBytes = 200;

void count(Summary& summary, const Row& row, const std::vector<Duration>& gaps, const Slo& slo) {
  ++summary.requests;
  if (!row.error.empty()) {
    ++summary.failed;
    return;
  }
  summary.good += slo.met_by(row) ? 1 : 0;
  summary.prompt_tokens += row.prompt_tokens;
  summary.completion_tokens += row.completion_tokens;
  summary.ttft.add(to_seconds(row.ttft()));
  if (const std::optional<Duration> tpot = row.tpot()) {
    summary.tpot.add(to_seconds(*tpot));
  }
  for (const Duration gap : gaps) {
    summary.itl.add(to_seconds(gap));
  }
  summary.latency.add(to_seconds(row.ended - row.due));
}

Error bad_slo(std::string_view text) {
  return {.code = Code::kInvalidArgument,
          .message = "\"" + std::string(text) + "\": want objectives such as ttft=200ms,tpot=50ms"};
}

}  // namespace

std::optional<Duration> Row::tpot() const {
  if (completion_tokens < 2 || last <= first) {
    return std::nullopt;
  }
  return (last - first) / (completion_tokens - 1);
}

bool Slo::met_by(const Row& row) const {
  const std::optional<Duration> pace = row.tpot();
  return row.error.empty() && (!ttft || row.ttft() <= *ttft) && (!tpot || !pace || *pace <= *tpot);
}

Result<Slo> parse_slo(std::string_view text) {
  Slo slo;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    std::optional<Duration>* which = name == "ttft"   ? &slo.ttft
                                     : name == "tpot" ? &slo.tpot
                                                      : nullptr;
    if (which == nullptr || which->has_value() || equals == std::string_view::npos) {
      return bad_slo(text);
    }
    const Result<Duration> limit = parse_duration(part.substr(equals + 1));
    if (!limit) {
      return limit.error();
    }
    *which = *limit;
  }
  return slo;
}

Results::Results(std::vector<std::string> models, Slo slo) : slo_(slo) {
  for (std::string& model : models) {
    models_.push_back({.model = std::move(model)});
  }
  all_.model = "all";
}

void Results::add(Row row, const std::vector<Duration>& gaps) {
  count(models_.at(row.model), row, gaps, slo_);
  count(all_, row, gaps, slo_);
  lateness_.add(to_seconds(std::max(row.begun - row.due, Duration{})));
  if (!row.error.empty()) {
    const std::string text = row.error.substr(0, kErrorBytes);
    const bool room = errors_.size() < kErrorsMost || errors_.contains(text);
    ++errors_[room ? text : "(others)"];
  }
  span_ = std::max(span_, row.ended);
  rows_.push_back(std::move(row));
}

double Results::per_second(std::int64_t count) const {
  return span_ > Duration{} ? static_cast<double>(count) / to_seconds(span_) : 0;
}

}  // namespace heddle::bench
