#include "policy/kv_return.h"

#include <algorithm>

namespace heddle::policy {
namespace {

constexpr std::int64_t kParts = 4;  // Of an average, the newest is one.

}  // namespace

bool worth_bringing_back(const KvReturn& kv) {
  if (kv.per_page == Duration{} || kv.per_token == Duration{}) {
    return kv.tokens > 0;
  }
  return kv.pages * kv.per_page < kv.tokens * kv.per_token;
}

Duration with_measured(Duration average, Duration measured) {
  const Duration least{1};  // 0 would say that nothing was measured.
  if (average == Duration{}) {
    return std::max(measured, least);
  }
  return std::max(average + (measured - average) / kParts, least);
}

}  // namespace heddle::policy
