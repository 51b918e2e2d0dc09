#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/serving.h"

namespace heddle::gateway {

/// The KV memory of one model on all devices that it is on, in pages.
struct KvUse {
  std::int64_t held = 0;  ///< With KV of its running requests.
  std::int64_t room = 0;  ///< That, and what it could have beside: free pages, cached prefixes.

  /// From 0 to 1; 1 means that it can get no more.
  [[nodiscard]] double fraction() const {
    return room > 0 ? static_cast<double>(held) / static_cast<double>(room) : 1;
  }
};

/// By name, of the models that run on a device. Engines of others keep their KV to themselves.
[[nodiscard]] std::map<std::string, KvUse> kv_use(const std::vector<core::DeviceStatus>& devices);

/// A model's KV cache on a device as vLLM tells of its own: so many blocks of so many tokens. Our
/// block is a page, or as many pages as a token needs where that is more than one.
struct KvBlocks {
  std::int64_t tokens = 0;
  std::int64_t count = 0;
  friend bool operator==(const KvBlocks&, const KvBlocks&) = default;
};

/// Of a model that is alone on a device of `pages` pages: they are its own but for its weights.
/// @param token_bytes   KV of one token there, over all layers.
/// @param weight_bytes  Weights of the model there.
/// @return  nullopt where a size is 0 or the weights leave no room for a block.
[[nodiscard]] std::optional<KvBlocks> kv_blocks(std::uint64_t token_bytes,
                                                std::uint64_t weight_bytes,
                                                std::uint64_t page_bytes,
                                                std::int64_t pages);

}  // namespace heddle::gateway
