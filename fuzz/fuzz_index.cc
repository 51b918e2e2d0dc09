// model.safetensors.index.json: whatever is accepted names files of the directory only.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "store/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto shards = heddle::store::parse_safetensors_index(text, "index.json");
  if (!shards) {
    HEDDLE_CHECK(shards.error().message.starts_with("index.json: "));
    return 0;
  }
  for (const auto& [tensor, shard] : *shards) {
    const auto path = (std::filesystem::path("/models/m") / shard).lexically_normal();
    HEDDLE_CHECK(path.parent_path() == "/models/m");
    HEDDLE_CHECK(shard.find('\0') == std::string::npos);
  }
  return 0;
}
