// How wrong each expert of policy/forecast is on a series of loads.
//
//   forecast_errors FILE|- [--by COLUMN] [--days D]
//
// FILE is CSV, "-" standard input (zcat FILE.csv.gz | forecast_errors - ...), in one of two forms:
//   model,client,win,rate,...   a rate per window of 600 s: ServeGen; --by model or client
//   minute,NAME,...             counts per minute; every NAME is a series, joined to 10 minutes
// Rates stand in for loads, as the sources have no service times. Rates of one series in one window
// add up; a window without a row is idle. Prints, for each series, sum |predicted - real| / sum
// real over all windows that have D days before them. With --by client the series are ranked by
// load and medians of rank groups printed.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "policy/forecast.h"

namespace {

using heddle::policy::ErrorWeights;
using heddle::policy::Expert;
using heddle::policy::Forecaster;
using heddle::policy::ForecastOptions;
using heddle::policy::LoadHistory;

using Series = std::map<std::string, std::vector<double>>;

constexpr std::array kColumns = {"printed", "corrected", "seasonal", "last", "max", "chosen"};
using Errors = std::array<double, kColumns.size()>;

struct Arguments {
  std::string file;
  std::string by = "model";
  std::int64_t days = 3;
  std::int64_t windows_per_day = 144;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) {
    cells.push_back(cell);
  }
  return cells;
}

void add(std::vector<double>& series, std::size_t window, double value) {
  if (series.size() <= window) {
    series.resize(window + 1);
  }
  series[window] += value;
}

/// Exits with a message on a row that does not fit the header: nothing is skipped silently.
Series read(std::istream& in, const Arguments& arguments) {
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> header = cells_of(line);
  const bool rates = header.size() > 3 && header[2] == "win" && header[3] == "rate";
  Series series;
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() < header.size()) {
      fmt::print(stderr,
                 "{}:{}: {} cells, header has {}\n",
                 arguments.file,
                 number,
                 cells.size(),
                 header.size());
      std::exit(1);
    }
    if (rates) {
      const std::string name = arguments.by == "client" ? cells[0] + "/" + cells[1] : cells[0];
      add(series[name], std::stoul(cells[2]), std::stod(cells[3]));
    } else {
      for (std::size_t i = 1; i < header.size(); ++i) {
        add(series[header[i]], std::stoul(cells[0]) / 10, std::stod(cells[i]) / 600);
      }
    }
  }
  return series;
}

Errors errors_of(const std::vector<double>& loads, const Arguments& arguments) {
  const ForecastOptions newest{.days = arguments.days};
  ForecastOptions printed = newest;
  printed.weights = ErrorWeights::kPrinted;
  LoadHistory history(arguments.windows_per_day, arguments.days);
  Forecaster forecaster;
  Errors off{};
  double total = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const auto window = static_cast<std::int64_t>(i);
    if (window >= arguments.days * arguments.windows_per_day) {
      const auto say = [&](Expert expert, const ForecastOptions& options) {
        return heddle::policy::predict(expert, history, window, options)
            .value_or(heddle::policy::Load{})
            .mean;
      };
      const Errors guesses = {say(Expert::kCorrected, printed),
                              say(Expert::kCorrected, newest),
                              say(Expert::kSeasonal, newest),
                              say(Expert::kLastWindow, newest),
                              say(Expert::kLastOrSeasonal, newest),
                              forecaster.forecast(history, window, newest).load.mean};
      for (std::size_t k = 0; k < off.size(); ++k) {
        off[k] += std::abs(guesses[k] - loads[i]);
      }
      total += loads[i];
    }
    history.record(window, {.mean = loads[i], .peak = loads[i]});
    forecaster.score(history, window, newest);
  }
  for (double& value : off) {
    value = total > 0 ? value / total : std::nan("");
  }
  return off;
}

void print(const std::string& name, const Errors& errors) {
  fmt::print("{:24}", name);
  for (const double error : errors) {
    fmt::print("{:10.1f}%", 100 * error);
  }
  fmt::print("\n");
}

/// Medians over groups of ranks by total load, greatest first.
void print_ranks(const Series& series, const Arguments& arguments) {
  std::vector<std::pair<double, Errors>> all;
  for (const auto& [name, loads] : series) {
    double total = 0;
    for (const double load : loads) {
      total += load;
    }
    const Errors errors = errors_of(loads, arguments);
    if (!std::isnan(errors[0])) {
      all.emplace_back(total, errors);
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr std::array<std::size_t, 5> kRanks = {0, 20, 60, 150, 300};
  for (std::size_t g = 0; g + 1 < kRanks.size() && kRanks[g] < all.size(); ++g) {
    const std::size_t end = std::min(kRanks[g + 1], all.size());
    Errors medians{};
    for (std::size_t k = 0; k < medians.size(); ++k) {
      std::vector<double> values;
      for (std::size_t i = kRanks[g]; i < end; ++i) {
        values.push_back(all[i].second[k]);
      }
      std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
      medians[k] = values[values.size() / 2];
    }
    print(fmt::format("median rank {}-{}", kRanks[g] + 1, end), medians);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--by" && i + 1 < argc) {
      arguments.by = argv[++i];
    } else if (word == "--days" && i + 1 < argc) {
      arguments.days = std::max(1, std::atoi(argv[++i]));
    } else {
      arguments.file = word;
    }
  }
  std::ifstream file(arguments.file);
  if (arguments.file.empty() || (arguments.file != "-" && !file)) {
    fmt::print(stderr, "usage: forecast_errors FILE.csv|- [--by model|client] [--days D]\n");
    return 1;
  }
  const Series series = read(arguments.file == "-" ? std::cin : file, arguments);
  fmt::print("{:24}", "series");
  for (const char* column : kColumns) {
    fmt::print("{:>11}", column);
  }
  fmt::print("\n");
  if (arguments.by == "client") {
    print_ranks(series, arguments);
    return 0;
  }
  for (const auto& [name, loads] : series) {
    print(name, errors_of(loads, arguments));
  }
  return 0;
}
