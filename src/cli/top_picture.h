#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "spec/json.h"

/// What the page at /ui/ shows, as text of a terminal.
namespace heddle::cli {

/// What a server said; null: it did not.
struct TopAnswers {
  std::string server{};     ///< Its address.
  std::string trouble{};    ///< Why something is missing or old; empty: all is there.
  std::int64_t now_ms = 0;  ///< When, since 1970.
  spec::Json models{};      ///< GET /v1/models, and so on.
  spec::Json running{};     ///< /running
  spec::Json devices{};     ///< /api/devices
  spec::Json forecasts{};   ///< /api/forecasts
  spec::Json requests{};    ///< /api/requests
  spec::Json decisions{};   ///< /api/decisions
};

/// Of a terminal, or as much as is wanted.
struct TopSize {
  std::size_t columns = 100;
  std::size_t rows = 40;
};

/// Lines of at most `size.columns` characters, at most `size.rows` of them, each with its end: how
/// much goes on; a bar of each pool (pool_picture.h); models, those first that are in memory or
/// asked for; what was decided lately, and why; the latest requests, and what they waited for.
/// With `colours` models have theirs.
[[nodiscard]] std::string draw_top(const TopAnswers& answers, const TopSize& size, bool colours);

}  // namespace heddle::cli
