#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "spec/sampling.h"

namespace heddle::spec {

/// A number of SamplingParams that a request may give by name, and whose default is as there.
struct SamplingNumber {
  float SamplingParams::* field = nullptr;
  std::string_view name{};  ///< In requests and in generation_config.json.
  double least = 0;
  double most = 0;
  bool suggested = false;  ///< generation_config.json may have it, for requests that do not.
};

inline constexpr auto kSamplingNumbers = std::to_array<SamplingNumber>({
    {&SamplingParams::temperature, "temperature", 0, 100, true},
    {&SamplingParams::top_p, "top_p", 0, 1, true},
    {&SamplingParams::min_p, "min_p", 0, 1, true},
    {&SamplingParams::presence_penalty, "presence_penalty", -2, 2},
    {&SamplingParams::frequency_penalty, "frequency_penalty", -2, 2},
    {&SamplingParams::repetition_penalty, "repetition_penalty", 0.01, 100, true},
});

/// What somebody says of these numbers; nothing of those left open.
class SamplingNumbers {
 public:
  /// `field` is one of kSamplingNumbers.
  [[nodiscard]] std::optional<double>& operator[](float SamplingParams::* field) {
    return said_[index(field)];
  }
  [[nodiscard]] const std::optional<double>& operator[](float SamplingParams::* field) const {
    return said_[index(field)];
  }

 private:
  static std::size_t index(float SamplingParams::* field) {
    std::size_t i = 0;
    while (i < kSamplingNumbers.size() && kSamplingNumbers[i].field != field) {
      ++i;
    }
    HEDDLE_CHECK(i < kSamplingNumbers.size());
    return i;
  }

  std::array<std::optional<double>, kSamplingNumbers.size()> said_{};
};

}  // namespace heddle::spec
