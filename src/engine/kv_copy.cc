#include "engine/kv_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace heddle::engine {
namespace {

/// A layer's part of a block, and those of all positions that lie in it.
struct BlockPart {
  std::byte* address = nullptr;  ///< On the device, as memory::KvGeometry has it.
  KvPositions positions{};
};

std::vector<BlockPart> parts_of(const ModelKv& kv,
                                const SequenceKv& sequence,
                                std::int64_t layer,
                                KvPositions all) {
  const auto [group, in_group] = kv.plan().place(layer);
  const memory::KvGeometry& geometry = kv.plan().groups[group].geometry;
  std::vector<BlockPart> parts;
  for (std::int64_t at = all.begin; at < all.end; at = parts.back().positions.end) {
    const std::int64_t block = at / geometry.block_tokens;
    const auto ref = sequence.groups()[group].blocks[static_cast<std::size_t>(block)];
    parts.push_back({.address = kv.address(group, ref) +
                                static_cast<std::size_t>(in_group) * geometry.layer_stride(),
                     .positions = {at, std::min((block + 1) * geometry.block_tokens, all.end)}});
  }
  return parts;
}

/// Calls `copy(offset in the part of the block, offset in the bytes of all, bytes)` for each row of
/// positions that lie together in both.
template <class Copy>
void for_each_row(const memory::KvGeometry& geometry,
                  KvPositions all,
                  KvPositions part,
                  const Copy& copy) {
  const auto in_block = static_cast<std::size_t>(part.begin % geometry.block_tokens);
  const auto in_bytes = static_cast<std::size_t>(part.begin - all.begin);
  const auto row = static_cast<std::size_t>(all.end - all.begin);
  const auto count = static_cast<std::size_t>(part.end - part.begin);
  const auto heads = static_cast<std::size_t>(geometry.shape.kv_heads);
  const auto tokens = static_cast<std::size_t>(geometry.block_tokens);
  std::size_t before = 0;  // Bytes of keys, or values, and of their scales.
  for (const std::size_t side : {std::size_t{0}, geometry.value_offset()}) {
    const auto copy_heads = [&](std::size_t place, std::size_t token) {
      for (std::size_t head = 0; head < heads; ++head) {
        copy(place + (head * tokens + in_block) * token,
             before + (head * row + in_bytes) * token,
             count * token);
      }
      before += heads * row * token;
    };
    copy_heads(side, geometry.token_stride());
    if (geometry.shape.scale_bytes > 0) {
      copy_heads(side + geometry.scale_offset(), geometry.shape.scale_bytes);
    }
  }
}

Result<void> copy_now(device::Stream& stream,
                      std::byte* target,
                      const std::byte* source,
                      std::size_t bytes) {
  stream.copy(target, source, bytes);
  return stream.synchronize();
}

bool is_host_memory(const device::Device& device) {
  return device.properties().kind == device::Kind::kCpu;
}

}  // namespace

Result<std::int64_t> copy_out(device::Device& device,
                              device::Stream& stream,
                              const ModelKv& kv,
                              const SequenceKv& sequence,
                              std::int64_t layer,
                              KvPositions positions,
                              std::string& bytes) {
  const std::size_t group = kv.plan().place(layer).group;
  const memory::KvGeometry& geometry = kv.plan().groups[group].geometry;
  const auto live = static_cast<std::int64_t>(sequence.groups()[group].first_live);
  positions.begin = std::clamp(live * geometry.block_tokens, positions.begin, positions.end);
  const std::size_t before = bytes.size();
  const auto count = static_cast<std::size_t>(positions.end - positions.begin);
  bytes.resize(before + count * kv.plan().position_bytes(layer));
  std::vector<std::byte> staged(is_host_memory(device) ? 0 : geometry.layer_stride());
  for (const BlockPart& part : parts_of(kv, sequence, layer, positions)) {
    const std::byte* source = part.address;
    if (!staged.empty()) {
      if (const auto done = copy_now(stream, staged.data(), source, staged.size()); !done) {
        return done.error();
      }
      source = staged.data();
    }
    for_each_row(geometry,
                 positions,
                 part.positions,
                 [&](std::size_t from, std::size_t to, std::size_t size) {
                   std::memcpy(bytes.data() + before + to, source + from, size);
                 });
  }
  return positions.begin;
}

Result<void> copy_in(device::Device& device,
                     device::Stream& stream,
                     const ModelKv& kv,
                     const SequenceKv& sequence,
                     std::int64_t layer,
                     KvPositions positions,
                     std::string_view bytes) {
  const auto count = static_cast<std::size_t>(positions.end - positions.begin);
  HEDDLE_CHECK(bytes.size() == count * kv.plan().position_bytes(layer));
  const auto& geometry = kv.plan().groups[kv.plan().place(layer).group].geometry;
  std::vector<std::byte> staged(is_host_memory(device) ? 0 : geometry.layer_stride());
  for (const BlockPart& part : parts_of(kv, sequence, layer, positions)) {
    std::byte* const target = staged.empty() ? part.address : staged.data();
    if (!staged.empty()) {  // Other positions of the block may have come before.
      if (const auto done = copy_now(stream, target, part.address, staged.size()); !done) {
        return done;
      }
    }
    for_each_row(geometry,
                 positions,
                 part.positions,
                 [&](std::size_t to, std::size_t from, std::size_t size) {
                   std::memcpy(target + to, bytes.data() + from, size);
                 });
    if (!staged.empty()) {
      if (const auto done = copy_now(stream, part.address, target, staged.size()); !done) {
        return done;
      }
    }
  }
  return {};
}

namespace {

/// The states in these blocks as they lie in memory, in order of layers and heads.
std::vector<std::span<std::byte>> states_in(const ModelKv& kv,
                                            std::span<const memory::KvBlockRef> blocks) {
  const KvPlan& plan = kv.plan();
  std::vector<std::span<std::byte>> pieces;
  for (std::int64_t layer = plan.range.begin; layer < plan.range.end; ++layer) {
    for (const StatePart& part : plan.state_parts(layer)) {
      pieces.emplace_back(
          kv.address(plan.kv_groups() + part.block, blocks[part.block]) + part.offset,
          static_cast<std::size_t>(part.heads * plan.states.head_bytes));
    }
  }
  return pieces;
}

}  // namespace

std::int64_t state_size(const KvPlan& plan) {
  std::int64_t heads = 0;
  for (const std::vector<StatePart>& layer : plan.states.parts) {
    for (const StatePart& part : layer) {
      heads += part.heads;
    }
  }
  return heads * plan.states.head_bytes;
}

Result<void> copy_states_out(device::Device& device,
                             device::Stream& stream,
                             const ModelKv& kv,
                             std::span<const memory::KvBlockRef> blocks,
                             std::int64_t begin,
                             std::int64_t end,
                             std::string& bytes) {
  std::int64_t at = 0;
  for (const std::span<std::byte> piece : states_in(kv, blocks)) {
    const std::int64_t from = std::clamp<std::int64_t>(begin - at, 0, std::ssize(piece));
    const std::int64_t to = std::clamp<std::int64_t>(end - at, from, std::ssize(piece));
    at += std::ssize(piece);
    const auto size = static_cast<std::size_t>(to - from);
    const std::size_t before = bytes.size();
    bytes.resize(before + size);
    auto* const target = reinterpret_cast<std::byte*>(bytes.data() + before);
    if (is_host_memory(device)) {
      std::memcpy(target, piece.data() + from, size);
    } else if (const auto done = copy_now(stream, target, piece.data() + from, size); !done) {
      return done;
    }
  }
  return {};
}

Result<void> copy_states_in(device::Device& device,
                            device::Stream& stream,
                            const ModelKv& kv,
                            std::span<const memory::KvBlockRef> blocks,
                            std::string_view bytes) {
  HEDDLE_CHECK(std::ssize(bytes) == state_size(kv.plan()));
  for (const std::span<std::byte> piece : states_in(kv, blocks)) {
    if (is_host_memory(device)) {
      std::memcpy(piece.data(), bytes.data(), piece.size());
    } else {
      const auto* const source = reinterpret_cast<const std::byte*>(bytes.data());
      if (const auto done = copy_now(stream, piece.data(), source, piece.size()); !done) {
        return done;
      }
    }
    bytes.remove_prefix(piece.size());
  }
  return {};
}

}  // namespace heddle::engine
