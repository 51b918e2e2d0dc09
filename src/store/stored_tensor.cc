#include "store/stored_tensor.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gguf/matrix_formats.h"
#include "spec/f8_panels.h"

namespace heddle::store {
namespace {

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::uint64_t bits;
};

constexpr std::array kTypes = {
    TypeRow{StoredType::kBool, "BOOL", 8},
    TypeRow{StoredType::kF4, "F4", 4},
    TypeRow{StoredType::kF6E2M3, "F6_E2M3", 6},
    TypeRow{StoredType::kF6E3M2, "F6_E3M2", 6},
    TypeRow{StoredType::kU8, "U8", 8},
    TypeRow{StoredType::kI8, "I8", 8},
    TypeRow{StoredType::kF8E5M2, "F8_E5M2", 8},
    TypeRow{StoredType::kF8E4M3, "F8_E4M3", 8},
    TypeRow{StoredType::kF8E8M0, "F8_E8M0", 8},
    TypeRow{StoredType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    TypeRow{StoredType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    TypeRow{StoredType::kI16, "I16", 16},
    TypeRow{StoredType::kU16, "U16", 16},
    TypeRow{StoredType::kF16, "F16", 16},
    TypeRow{StoredType::kBf16, "BF16", 16},
    TypeRow{StoredType::kI32, "I32", 32},
    TypeRow{StoredType::kU32, "U32", 32},
    TypeRow{StoredType::kF32, "F32", 32},
    TypeRow{StoredType::kC64, "C64", 64},
    TypeRow{StoredType::kF64, "F64", 64},
    TypeRow{StoredType::kI64, "I64", 64},
    TypeRow{StoredType::kU64, "U64", 64},
};

const TypeRow& row_of(StoredType type) {
  return *std::ranges::find(kTypes, type, &TypeRow::type);
}

/// Plain numbers that both formats have.
constexpr std::array kPlain = {
    std::pair{gguf::BlockType::kF32, StoredType::kF32},
    std::pair{gguf::BlockType::kF16, StoredType::kF16},
    std::pair{gguf::BlockType::kBf16, StoredType::kBf16},
    std::pair{gguf::BlockType::kF64, StoredType::kF64},
    std::pair{gguf::BlockType::kI8, StoredType::kI8},
    std::pair{gguf::BlockType::kI16, StoredType::kI16},
    std::pair{gguf::BlockType::kI32, StoredType::kI32},
    std::pair{gguf::BlockType::kI64, StoredType::kI64},
};

/// The shape of a type that GGUF alone has.
std::optional<gguf::BlockShape> shape_of(StoredType type) {
  const bool blocks = type >= StoredType::kBlocks && type != StoredType::kF8Scaled;
  return blocks ? gguf::find_block_shape(static_cast<std::uint32_t>(type) -
                                         static_cast<std::uint32_t>(StoredType::kBlocks))
                : std::nullopt;
}

}  // namespace

StoredType stored_type_of(gguf::BlockType type) {
  const auto* plain =
      std::ranges::find(kPlain, type, &std::pair<gguf::BlockType, StoredType>::first);
  return plain != kPlain.end()
             ? plain->second
             : static_cast<StoredType>(static_cast<unsigned>(StoredType::kBlocks) +
                                       static_cast<unsigned>(type));
}

std::optional<gguf::BlockType> block_type_of(StoredType type) {
  if (const auto shape = shape_of(type)) {
    return shape->type;
  }
  const auto* plain =
      std::ranges::find(kPlain, type, &std::pair<gguf::BlockType, StoredType>::second);
  return plain != kPlain.end() ? std::optional(plain->first) : std::nullopt;
}

spec::DType matrix_format(StoredType type) {
  if (type == StoredType::kF8Scaled) {
    return spec::DType::kF8;
  }
  const auto blocks = block_type_of(type);
  return blocks ? gguf::matrix_format(*blocks) : spec::DType::kBf16;
}

std::string_view stored_type_name(StoredType type) {
  if (type == StoredType::kF8Scaled) {
    return spec::dtype_name(spec::DType::kF8);
  }
  const auto shape = shape_of(type);
  return shape ? shape->name : row_of(type).name;
}

std::uint64_t stored_type_elements(StoredType type) {
  if (type == StoredType::kF8Scaled) {
    return static_cast<std::uint64_t>(spec::kF8Inputs);
  }
  const auto shape = shape_of(type);
  return shape ? shape->elements : 1;
}

std::uint64_t stored_type_bits(StoredType type) {
  if (type == StoredType::kF8Scaled) {
    return static_cast<std::uint64_t>(spec::kF8Bytes) * 8;
  }
  const auto shape = shape_of(type);
  return shape ? std::uint64_t{shape->bytes} * 8 : row_of(type).bits;
}

std::uint64_t stored_bytes(StoredType type, std::uint64_t elements) {
  return elements / stored_type_elements(type) * stored_type_bits(type) / 8;
}

std::optional<StoredType> find_stored_type(std::string_view name) {
  const auto* row = std::ranges::find(kTypes, name, &TypeRow::name);
  return row != kTypes.end() ? std::optional(row->type) : std::nullopt;
}

std::string describe(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", stored_type_name(tensor.type), fmt::join(tensor.shape, ", "));
}

}  // namespace heddle::store
