#include "lab/counters.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace heddle::lab {

namespace {

constexpr std::string_view kTotal = "_total";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  const std::size_t last = text.find_last_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, last - first + 1);
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

/// `name="value",...` up to the brace, which is taken from `rest` as well.
std::optional<SeriesLabels> take_labels(std::string_view& rest) {
  SeriesLabels labels;
  for (;;) {
    rest = rest.substr(std::min(rest.find_first_not_of(", "), rest.size()));
    if (rest.starts_with('}')) {
      rest.remove_prefix(1);
      return labels;
    }
    const std::size_t open = rest.find("=\"");
    if (open == std::string_view::npos) {
      return std::nullopt;
    }
    std::string& value = labels[std::string(rest.substr(0, open))];
    rest.remove_prefix(open + 2);
    while (!rest.starts_with('"')) {
      if (rest.size() < 2) {
        return std::nullopt;
      }
      if (rest.starts_with('\\')) {
        rest.remove_prefix(1);
        value += rest.front() == 'n' ? '\n' : rest.front();
      } else {
        value += rest.front();
      }
      rest.remove_prefix(1);
    }
    rest.remove_prefix(1);
  }
}

bool has_all(const SeriesLabels& labels, const SeriesLabels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    const auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

}  // namespace

Counters Counters::parse(std::string_view text) {
  Counters counters;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t name_end = line.find_first_of("{ ");
    if (line.empty() || line.starts_with('#') || name_end == std::string_view::npos) {
      continue;
    }
    const std::string name(line.substr(0, name_end));
    std::string_view rest = line.substr(name_end);
    std::optional<SeriesLabels> labels = SeriesLabels{};
    if (rest.starts_with('{')) {
      rest.remove_prefix(1);
      labels = take_labels(rest);
    }
    const std::optional<double> value = number(trim(rest));
    if (labels && value) {
      counters.series_[name][*labels] = *value;
    }
  }
  return counters;
}

double Counters::total(std::string_view name, const SeriesLabels& labels) const {
  double sum = 0;
  if (const auto found = series_.find(name); found != series_.end()) {
    for (const auto& [each, value] : found->second) {
      sum += has_all(each, labels) ? value : 0;
    }
  }
  return sum;
}

std::map<std::string, double> Counters::by(std::string_view name, std::string_view label) const {
  std::map<std::string, double> sums;
  if (const auto found = series_.find(name); found != series_.end()) {
    for (const auto& [labels, value] : found->second) {
      if (const auto key = labels.find(label); key != labels.end()) {
        sums[key->second] += value;
      }
    }
  }
  return sums;
}

Counters Counters::since(const Counters& earlier) const {
  Counters grown;
  for (const auto& [name, all] : series_) {
    if (!name.ends_with(kTotal)) {
      continue;
    }
    const auto before = earlier.series_.find(name);
    for (const auto& [labels, value] : all) {
      double was = 0;
      if (before != earlier.series_.end()) {
        const auto found = before->second.find(labels);
        was = found == before->second.end() ? 0 : found->second;
      }
      // One that fell began anew, as that of a worker which was restarted.
      grown.series_[name][labels] = value >= was ? value - was : value;
    }
  }
  return grown;
}

}  // namespace heddle::lab
