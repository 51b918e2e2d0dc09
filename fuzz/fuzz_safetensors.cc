// The header of a safetensors file: whatever is accepted covers the data exactly once. The first
// two bytes say how much data follows, the rest is the JSON.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>

#include "base/check.h"
#include "store/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  constexpr std::uint64_t kBegin = 1000;
  const std::uint64_t data_bytes = data[0] | std::uint64_t{data[1]} << 8U;
  const std::string_view json(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto tensors = heddle::store::parse_safetensors_header(json, kBegin, data_bytes, "m");
  if (!tensors) {
    HEDDLE_CHECK(tensors.error().message.starts_with("m: "));
    return 0;
  }
  std::set<std::string_view> names;
  std::uint64_t end = kBegin;
  for (const heddle::store::StoredTensor& tensor : *tensors) {
    HEDDLE_CHECK(tensor.offset == end);
    end += tensor.bytes;
    HEDDLE_CHECK(names.insert(tensor.name).second);
    (void)heddle::store::describe(tensor);
  }
  HEDDLE_CHECK(end == kBegin + data_bytes);
  return 0;
}
