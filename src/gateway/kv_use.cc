#include "gateway/kv_use.h"

#include <algorithm>

namespace heddle::gateway {

std::map<std::string, KvUse> kv_use(const std::vector<core::DeviceStatus>& devices) {
  std::map<std::string, KvUse> all;
  for (const core::DeviceStatus& device : devices) {
    const std::int64_t spare =
        device.usage.free + device.usage.of(ledger::LeaseKind::kKvCached).held;
    for (const core::ResidentStatus& resident : device.residents) {
      if (resident.external) {
        continue;
      }
      KvUse& use = all[resident.model];
      use.held += resident.kv_pages;
      use.room += resident.kv_pages + spare;
    }
  }
  return all;
}

std::optional<KvBlocks> kv_blocks(std::uint64_t token_bytes,
                                  std::uint64_t weight_bytes,
                                  std::uint64_t page_bytes,
                                  std::int64_t pages) {
  if (token_bytes == 0 || page_bytes == 0 || pages <= 0) {
    return std::nullopt;
  }
  const std::uint64_t weights = (weight_bytes + page_bytes - 1) / page_bytes;
  const std::uint64_t left =
      static_cast<std::uint64_t>(pages) - std::min(weights, static_cast<std::uint64_t>(pages));
  const std::uint64_t pages_per_block = (token_bytes + page_bytes - 1) / page_bytes;
  const KvBlocks blocks{
      .tokens = static_cast<std::int64_t>(pages_per_block * page_bytes / token_bytes),
      .count = static_cast<std::int64_t>(left / pages_per_block)};
  return blocks.count > 0 ? std::optional(blocks) : std::nullopt;
}

}  // namespace heddle::gateway
