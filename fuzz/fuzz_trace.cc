// Files of people who simulate: traces and scripts of faults. The first byte chooses.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sim/faults.h"
#include "sim/trace.h"

using namespace heddle;

namespace {

void read_trace(std::string_view text) {
  sim::TraceParser parser;
  Instant latest{};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const auto row = parser.parse(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (row && row->has_value()) {
      HEDDLE_CHECK((*row)->arrival >= latest);
      HEDDLE_CHECK((*row)->input_tokens >= 0 && (*row)->output_tokens >= 0);
      latest = (*row)->arrival;
    } else if (!row) {
      HEDDLE_CHECK(!row.error().message.empty());
    }
  }
}

void read_faults(std::string_view text) {
  constexpr std::size_t kGpus = 8;
  constexpr std::size_t kHosts = 2;
  const auto plans = sim::parse_faults(text, "faults", kGpus, kHosts);
  if (!plans) {
    HEDDLE_CHECK(!plans.error().message.empty());
    return;
  }
  for (const sim::FaultPlan& plan : *plans) {
    HEDDLE_CHECK(plan.at >= Instant{} && plan.lasts >= Duration{});
    HEDDLE_CHECK(plan.target < kGpus);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) {
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    (data[0] == 'f' ? read_faults : read_trace)(text);
  }
  return 0;
}
