#include "store/turned_experts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "store/convert.h"
#include "store/packed_matrix.h"

namespace heddle::store {
namespace {

using spec::Packing;
using Shape = std::vector<std::int64_t>;

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr std::string_view kBias = "_bias";
constexpr std::int64_t kExpertsMax = 1 << 10;  // As spec/config_json.cc.
constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kBlockBytes = 16;

/// A tensor of all experts, and the matrices that take turns in its rows.
struct Stack {
  std::string_view name{};
  std::array<std::string_view, 2> parts{};
  std::size_t count = 0;
};
constexpr std::array kStacks = {
    Stack{.name = ".mlp.experts.gate_up_proj", .parts = {"gate_proj", "up_proj"}, .count = 2},
    Stack{.name = ".mlp.experts.down_proj", .parts = {"down_proj"}, .count = 1}};

/// What one expert has of a stack.
PackedMatrix::Part part_of(const TensorSet::Entry& stack, std::int64_t expert) {
  PackedMatrix::Part part{.tensor = stack.tensor, .file = stack.file};
  part.tensor.bytes /= static_cast<std::uint64_t>(stack.tensor.shape[0]);
  part.tensor.offset += static_cast<std::uint64_t>(expert) * part.tensor.bytes;
  part.tensor.shape.erase(part.tensor.shape.begin());
  return part;
}

/// Makes the tensors of a layer's experts.
class Splitter {
 public:
  Splitter(const TensorSet& tensors, std::string layer) : tensors_(tensors), layer_(layer) {}

  void split(const Stack& stack) {
    const std::string name = layer_ + std::string(stack.name);
    const auto turns = static_cast<std::int64_t>(stack.count);
    const TensorSet::Entry* plain = stack_of(name, 3);
    if (plain != nullptr && can_convert(plain->tensor.type, spec::DType::kF32) &&
        plain->tensor.shape[2] % turns == 0) {
      make(stack, *plain, nullptr, plain->tensor.shape[1], plain->tensor.shape[2], "weight");
      gone_.push_back(name);
    }
    const TensorSet::Entry* bias = stack_of(name + std::string(kBias), 2);
    if (bias != nullptr && can_convert(bias->tensor.type, spec::DType::kF32) &&
        bias->tensor.shape[1] % turns == 0) {
      make(stack, *bias, nullptr, 1, bias->tensor.shape[1], "bias");
      gone_.push_back(name + std::string(kBias));
    }
    const TensorSet::Entry* blocks = stack_of(name + std::string(kBlocks), 4);
    const TensorSet::Entry* scales = stack_of(name + std::string(kScales), 3);
    if (blocks != nullptr && scales != nullptr && are_mxfp4(*blocks, *scales) &&
        blocks->tensor.shape[1] % turns == 0) {
      const Shape& shape = blocks->tensor.shape;
      make(stack, *blocks, scales, shape[2] * kBlock, shape[1], "weight");
      gone_.push_back(name + std::string(kBlocks));
      gone_.push_back(name + std::string(kScales));
    }
  }

  [[nodiscard]] std::vector<std::string>& gone() { return gone_; }
  [[nodiscard]] std::vector<TensorSet::Entry>& made() { return made_; }

 private:
  /// The tensor of that name, if it has so many sides, none of them empty.
  [[nodiscard]] const TensorSet::Entry* stack_of(const std::string& name, std::size_t sides) const {
    const TensorSet::Entry* entry = tensors_.find(name);
    if (entry == nullptr || entry->packed != nullptr || entry->tensor.shape.size() != sides ||
        entry->tensor.shape[0] > kExpertsMax || stored_type_elements(entry->tensor.type) != 1) {
      return nullptr;
    }
    for (const std::int64_t side : entry->tensor.shape) {
      if (side < 1) {
        return nullptr;
      }
    }
    return entry;
  }

  static bool are_mxfp4(const TensorSet::Entry& blocks, const TensorSet::Entry& scales) {
    Shape shape = blocks.tensor.shape;
    const bool whole = shape.back() == kBlockBytes;
    shape.pop_back();
    return whole && blocks.tensor.type == StoredType::kU8 &&
           scales.tensor.type == StoredType::kU8 && scales.tensor.shape == shape;
  }

  /// The matrices of each expert, of `rows` rows together; with scales they are MXFP4.
  void make(const Stack& stack,
            const TensorSet::Entry& numbers,
            const TensorSet::Entry* scales,
            std::int64_t columns,
            std::int64_t rows,
            std::string_view ending) {
    const auto turns = static_cast<std::int64_t>(stack.count);
    for (std::int64_t expert = 0; expert < numbers.tensor.shape[0]; ++expert) {
      for (std::int64_t turn = 0; turn < turns; ++turn) {
        PackedMatrix matrix{
            .how = {.packing = scales != nullptr ? Packing::kMxfp4 : Packing::kTurned},
            .rows = rows / turns,
            .columns = columns,
            .numbers = part_of(numbers, expert),
            .turns = turns,
            .turn = turn};
        if (scales != nullptr) {
          matrix.scales = part_of(*scales, expert);
        }
        const StoredType type = rows_type(matrix);
        const auto elements = static_cast<std::uint64_t>(matrix.rows * columns);
        made_.push_back({.tensor = {.name = fmt::format("{}.mlp.experts.{}.{}.{}",
                                                        layer_,
                                                        expert,
                                                        stack.parts[static_cast<std::size_t>(turn)],
                                                        ending),
                                    .type = type,
                                    .shape = {matrix.rows, columns},
                                    .bytes = stored_bytes(type, elements)},
                         .file = numbers.file,
                         .packed = std::make_shared<const PackedMatrix>(std::move(matrix))});
      }
    }
  }

  const TensorSet& tensors_;
  std::string layer_;
  std::vector<std::string> gone_{};
  std::vector<TensorSet::Entry> made_{};
};

}  // namespace

void split_turned_experts(TensorSet& tensors) {
  std::vector<std::string> gone;
  std::vector<TensorSet::Entry> made;
  for (const auto& [name, entry] : tensors.entries()) {
    constexpr std::string_view kOfEachLayer = ".mlp.router.weight";
    if (!name.starts_with(kLayers) || !name.ends_with(kOfEachLayer)) {
      continue;
    }
    Splitter splitter(tensors, name.substr(0, name.size() - kOfEachLayer.size()));
    for (const Stack& stack : kStacks) {
      splitter.split(stack);
    }
    std::ranges::move(splitter.gone(), std::back_inserter(gone));
    std::ranges::move(splitter.made(), std::back_inserter(made));
  }
  tensors.exchange(gone, std::move(made));
}

}  // namespace heddle::store
