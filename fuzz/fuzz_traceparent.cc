// What clients say of the traces that their requests belong to. Whatever is accepted can be said
// again, and is then understood in the same way.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "trace/retry.h"
#include "trace/trace_context.h"

using namespace heddle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto context = trace::parse_traceparent(text)) {
    HEDDLE_CHECK(context->trace != trace::TraceId{} && context->span != trace::SpanId{});
    const auto again = trace::parse_traceparent(trace::traceparent(*context));
    HEDDLE_CHECK(again && *again == *context);
    HEDDLE_CHECK(trace::traceparent(*context).substr(3, 32) == trace::hex(context->trace));
  }
  // What collectors say of when to come again.
  if (const auto wait = trace::parse_retry_after(text, 1'700'000'000)) {
    HEDDLE_CHECK(*wait >= Duration{} && *wait <= trace::kLongestWait);
  }
  return 0;
}
