#include "store/fused_experts.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace heddle::store {
namespace {

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kGateUp = ".experts.gate_up_proj";
constexpr std::string_view kDown = ".experts.down_proj";
constexpr std::int64_t kExpertsMax = 1 << 10;  // As spec/config_json.cc.

/// Whether it is [experts, rows, columns] of elements one by one, rows being so many parts.
bool is_stack(const TensorSet::Entry& entry, std::int64_t parts) {
  const std::vector<std::int64_t>& shape = entry.tensor.shape;
  return entry.packed == nullptr && stored_type_elements(entry.tensor.type) == 1 &&
         stored_type_bits(entry.tensor.type) % 8 == 0 && shape.size() == 3 && shape[0] > 0 &&
         shape[0] <= kExpertsMax && shape[1] > 0 && shape[1] % parts == 0 && shape[2] > 0;
}

/// The matrices of a stack in their order, each expert's called by the names of `parts`.
template <std::size_t kParts>
void split(const TensorSet::Entry& stack,
           std::string_view experts,
           const std::array<std::string_view, kParts>& parts,
           std::vector<TensorSet::Entry>& entries) {
  const std::vector<std::int64_t>& shape = stack.tensor.shape;
  const std::int64_t rows = shape[1] / static_cast<std::int64_t>(kParts);
  const std::uint64_t bytes =
      stored_bytes(stack.tensor.type, static_cast<std::uint64_t>(rows * shape[2]));
  std::uint64_t offset = stack.tensor.offset;
  for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
    for (const std::string_view part : parts) {
      entries.push_back({.tensor = {.name = fmt::format("{}.{}.{}.weight", experts, expert, part),
                                    .type = stack.tensor.type,
                                    .shape = {rows, shape[2]},
                                    .offset = offset,
                                    .bytes = bytes},
                         .file = stack.file});
      offset += bytes;
    }
  }
}

}  // namespace

void split_experts(TensorSet& tensors) {
  std::vector<std::string> stacks;
  std::vector<TensorSet::Entry> entries;
  for (const auto& [name, entry] : tensors.entries()) {
    const std::string_view experts = std::string_view(name).substr(0, name.rfind('.'));
    if (!name.starts_with(kLayers)) {
      continue;
    }
    if (name.ends_with(kGateUp) && is_stack(entry, 2)) {
      split(entry, experts, std::array<std::string_view, 2>{"gate_proj", "up_proj"}, entries);
      stacks.push_back(name);
    } else if (name.ends_with(kDown) && is_stack(entry, 1)) {
      split(entry, experts, std::array<std::string_view, 1>{"down_proj"}, entries);
      stacks.push_back(name);
    }
  }
  tensors.exchange(stacks, std::move(entries));
}

}  // namespace heddle::store
