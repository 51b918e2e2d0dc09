#include "engine/prefix_keys.h"

#include <cstring>

namespace heddle::engine {

PrefixKeys::PrefixKeys(const SipKey& secret, std::string_view salt)
    : secret_(secret), root_(siphash(secret, std::as_bytes(std::span(salt)))) {}

void PrefixKeys::extend(std::vector<memory::BlockKey>& keys,
                        std::span<const TokenId> tokens,
                        std::int64_t block_tokens) const {
  const auto length = static_cast<std::size_t>(block_tokens);
  std::vector<std::byte> content(sizeof(memory::BlockKey) + length * sizeof(TokenId));
  while (tokens.size() >= (keys.size() + 1) * length) {
    const memory::BlockKey& before = keys.empty() ? root_ : keys.back();
    std::memcpy(content.data(), &before, sizeof(before));
    std::memcpy(content.data() + sizeof(before),
                tokens.data() + keys.size() * length,
                length * sizeof(TokenId));
    keys.push_back(siphash(secret_, content));
  }
}

}  // namespace heddle::engine
