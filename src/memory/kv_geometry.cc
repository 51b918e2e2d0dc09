#include "memory/kv_geometry.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"

namespace heddle::memory {
namespace {

/// A token's KV in one group: more would leave too few tokens to a page.
constexpr std::size_t kTokenBytesMax = std::size_t{128} << 10U;
/// The least tokens of a block, where the page has room for them: attention reads block by block.
constexpr std::size_t kBlockTokensMin = 16;
/// Beyond any model; keeps the products below far from overflow.
constexpr std::int64_t kDimensionMax = std::int64_t{1} << 16U;

Result<void> check_dimension(const char* name, std::int64_t value) {
  if (value < 1 || value > kDimensionMax) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "lay out KV: " + std::string(name) + " is " + std::to_string(value) +
                            ", must be 1 to " + std::to_string(kDimensionMax)};
  }
  return {};
}

KvGeometry lay_out(const KvShape& shape, std::size_t page_bytes) {
  KvGeometry geometry{.shape = shape};
  const std::size_t page_tokens = page_bytes / geometry.token_bytes();
  const std::size_t blocks =
      std::bit_floor(std::max<std::size_t>(1, page_tokens / kBlockTokensMin));
  geometry.blocks_per_page = static_cast<std::uint32_t>(blocks);
  geometry.block_bytes = page_bytes / blocks;
  geometry.block_tokens = static_cast<std::int64_t>(geometry.block_bytes / geometry.token_bytes());
  const auto layers = static_cast<std::size_t>(shape.layers);
  while (geometry.block_tokens > 1 && layers * geometry.layer_stride() > geometry.block_bytes) {
    --geometry.block_tokens;  // What is behind scales takes room as well.
  }
  return geometry;
}

}  // namespace

Result<std::vector<KvGroup>> kv_groups(const KvShape& shape, std::size_t page_bytes) {
  HEDDLE_CHECK(std::has_single_bit(page_bytes));
  for (const auto& [name, value] :
       {std::pair("layers", shape.layers),
        std::pair("kv_heads", shape.kv_heads),
        std::pair("head_dim", shape.head_dim),
        std::pair("element_bytes", static_cast<std::int64_t>(shape.element_bytes))}) {
    if (auto valid = check_dimension(name, value); !valid) {
      return valid.error();
    }
  }
  KvShape one_layer = shape;
  one_layer.layers = 1;
  const std::size_t layer_bytes = KvGeometry{.shape = one_layer, .block_tokens = 1}.layer_stride();
  if (layer_bytes > page_bytes) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "lay out KV: one token of one layer needs " +
                            std::to_string(layer_bytes) + " bytes and a page has " +
                            std::to_string(page_bytes) + "; use larger pages"};
  }
  const std::size_t token_bytes_max = std::min(kTokenBytesMax, page_bytes);
  const auto layers_max =
      static_cast<std::int64_t>(std::max<std::size_t>(1, token_bytes_max / layer_bytes));
  const std::int64_t count = (shape.layers + layers_max - 1) / layers_max;
  std::vector<KvGroup> groups;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = shape.layers * i / count;
    KvShape part = shape;
    part.layers = shape.layers * (i + 1) / count - first;
    groups.push_back({.first_layer = first, .geometry = lay_out(part, page_bytes)});
  }
  return groups;
}

}  // namespace heddle::memory
