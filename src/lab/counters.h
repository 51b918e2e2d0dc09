#pragma once

#include <map>
#include <string>
#include <string_view>

namespace heddle::lab {

/// Labels of one time series.
using SeriesLabels = std::map<std::string, std::string, std::less<>>;

/// The numbers that a server exposes at one moment.
class Counters {
 public:
  /// Reads Prometheus' text format, version 0.0.4. Lines that are none of it are passed over, since
  /// a server of another version may say more than this one knows.
  [[nodiscard]] static Counters parse(std::string_view text);

  /// The sum over all series of `name` that have these labels; 0 where there is none.
  [[nodiscard]] double total(std::string_view name, const SeriesLabels& labels = {}) const;
  /// The sums over all series of `name` with the same value of `label`.
  [[nodiscard]] std::map<std::string, double> by(std::string_view name,
                                                 std::string_view label) const;
  /// What has been counted since `earlier`: differences of the series whose names end in "_total".
  [[nodiscard]] Counters since(const Counters& earlier) const;

  /// Series by name, then labels.
  [[nodiscard]] const std::map<std::string, std::map<SeriesLabels, double>, std::less<>>& series()
      const {
    return series_;
  }

 private:
  std::map<std::string, std::map<SeriesLabels, double>, std::less<>> series_{};
};

}  // namespace heddle::lab
