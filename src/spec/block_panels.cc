#include "spec/block_panels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "spec/f8_panels.h"

namespace heddle::spec {
namespace {

constexpr std::int64_t kInputs = 32;  // That quants follow each other for.
constexpr std::size_t kRows = kPanelRows;
constexpr std::size_t kMatricesOfLayer = 10;

using Bytes = std::uint8_t;

/// What a type of blocks is made of, in bytes and bits of a file's block.
struct BlockForm {
  std::int64_t elements = 32;
  std::size_t scales_at = 0;  ///< The float16 scale; the minimum, where there is one, is behind it.
  bool minimum = false;
  std::size_t small_at = 0;
  std::size_t small = 0;  ///< Bytes of small scales.
  int upper = 0;          ///< Upper bits of a number.
  int lower = 4;
  int offset = 0;  ///< Which is taken from numbers.
  /// The scale is an exponent in a byte, and four bits are the code of a number (MXFP4).
  bool float4 = false;

  [[nodiscard]] std::size_t scale_bytes() const { return float4 ? 1 : 2; }
  [[nodiscard]] std::size_t head() const { return (minimum ? 4 : scale_bytes()) + small; }
  /// Bytes of the upper bits, and of all, of 32 numbers.
  [[nodiscard]] std::size_t upper_bytes() const { return static_cast<std::size_t>(upper) * 4; }
  [[nodiscard]] std::size_t quant_bytes() const {
    return static_cast<std::size_t>(upper + lower) * 4;
  }
  [[nodiscard]] std::size_t parts() const { return static_cast<std::size_t>(elements / kInputs); }
};

BlockForm form_of(DType dtype) {
  switch (dtype) {
    case DType::kQ80:
      return {.lower = 8, .offset = 128};
    case DType::kQ40:
      return {.offset = 8};
    case DType::kQ41:
      return {.minimum = true};
    case DType::kQ50:
      return {.upper = 1, .offset = 16};
    case DType::kQ51:
      return {.minimum = true, .upper = 1};
    case DType::kQ4K:
      return {.elements = 256, .minimum = true, .small_at = 4, .small = 12};
    case DType::kQ5K:
      return {.elements = 256, .minimum = true, .small_at = 4, .small = 12, .upper = 1};
    case DType::kQ6K:
      return {.elements = 256,
              .scales_at = 208,
              .small_at = 192,
              .small = 16,
              .upper = 2,
              .offset = 32};
    case DType::kMxfp4:
      return {.offset = 12, .float4 = true};
    default:
      HEDDLE_CHECK(false);
  }
}

/// Quants of 32 numbers of a row, four numbers to a word, as a panel has them at every sixteenth.
struct Words {
  std::array<std::uint32_t, 2> upper{};
  std::array<std::uint32_t, 8> lower{};
};

std::uint32_t word_at(const Bytes* from, std::size_t i) {
  std::uint32_t word = 0;
  std::memcpy(&word, from + 4 * i, sizeof(word));
  return word;
}

/// The lower four bits of numbers i and i + 16, of words which have those `shift` bits up.
std::uint32_t nibbles(std::uint32_t first, std::uint32_t second, unsigned shift) {
  constexpr std::uint32_t kLow = 0x0F0F0F0FU;
  return ((first >> shift) & kLow) | ((second >> shift) & kLow) << 4U;
}

/// Bytes of which the i-th has bits i, 4 + i, 8 + i, ... of `bits`.
std::uint32_t every_fourth(std::uint32_t bits) {
  std::uint32_t word = 0;
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t picked = (bits >> i) & 0x11111111U;
    picked = (picked | picked >> 3U) & 0x03030303U;
    picked = (picked | picked >> 6U) & 0x000F000FU;
    word |= ((picked | picked >> 12U) & 0xFFU) << (8 * i);
  }
  return word;
}

/// Of a block of 32: 4 bits, of bytes which have numbers i and i + 16; 32 upper bits; or 8 bits.
Words words_of_32(const BlockForm& form, const Bytes* block) {
  Words words;
  const std::size_t head = form.head();
  const Bytes* const low = block + head + form.upper_bytes();
  for (std::size_t i = 0; i < (form.lower == 8 ? 8U : 4U); ++i) {
    words.lower[i] = word_at(low, i) ^ (form.lower == 8 ? 0x80808080U : 0U);
  }
  if (form.upper == 1) {
    words.upper[0] = every_fourth(word_at(block + head, 0));
  }
  return words;
}

/// Part `part` of a block of Q4_K or Q5_K: bit `part` of 32 bytes, if it has any; and 32 bytes with
/// 4 bits of this part and 4 of its neighbour.
Words words_of_k(const BlockForm& form, const Bytes* block, std::size_t part) {
  Words words;
  const Bytes* const high = block + form.head();
  const Bytes* const low = high + (form.upper > 0 ? 32 : 0) + part / 2 * 32;
  const auto shift = static_cast<unsigned>(part % 2 * 4);
  for (std::size_t i = 0; i < 4; ++i) {
    words.lower[i] = nibbles(word_at(low, i), word_at(low, i + 4), shift);
  }
  for (std::size_t g = 0; form.upper > 0 && g < 8; ++g) {
    words.upper[0] |= ((word_at(high, g) >> part) & 0x01010101U) << g;
  }
  return words;
}

/// Part `part` of a block of Q6_K, whose halves of 128 have 64 bytes of 4 bits and 32 of 2.
Words words_of_q6k(const Bytes* block, std::size_t part) {
  Words words;
  const std::size_t quarter = part % 4;
  const Bytes* const low = block + part / 4 * 64 + quarter % 2 * 32;
  const Bytes* const high = block + 128 + part / 4 * 32;
  for (std::size_t i = 0; i < 4; ++i) {
    words.lower[i] =
        nibbles(word_at(low, i), word_at(low, i + 4), static_cast<unsigned>(quarter / 2 * 4));
  }
  for (std::size_t g = 0; g < 8; ++g) {
    words.upper[g / 4] |= ((word_at(high, g) >> (2 * quarter)) & 0x03030303U) << (g % 4 * 2);
  }
  return words;
}

/// Writes quants of a row into those of a panel.
void scatter(const BlockForm& form, const Words& words, std::size_t row, Bytes* quants) {
  const auto put = [&](const std::uint32_t* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, quants += 4 * kRows) {
      std::memcpy(quants + 4 * row, &from[i], sizeof(*from));
    }
  };
  put(words.upper.data(), static_cast<std::size_t>(form.upper));
  put(words.lower.data(), static_cast<std::size_t>(form.lower));
}

using Numbers = std::array<Bytes, kInputs>;

/// Writes a file's block, of row `row`, into that of a panel.
void put_block(const BlockForm& form, const Bytes* from, std::size_t row, Bytes* out) {
  std::memcpy(out + form.scale_bytes() * row, from + form.scales_at, form.scale_bytes());
  if (form.minimum) {
    std::memcpy(out + 2 * kRows + 2 * row, from + form.scales_at + 2, 2);
  }
  Bytes* const small = out + (form.minimum ? 4 : 2) * kRows + row;
  for (std::size_t i = 0; i < form.small; ++i) {
    small[i * kRows] = from[form.small_at + i];
  }
  Bytes* quants = out + form.head() * kRows;
  for (std::size_t part = 0; part < form.parts(); ++part) {
    const Words words = form.elements == 32 ? words_of_32(form, from)
                        : form.small == 12  ? words_of_k(form, from, part)
                                            : words_of_q6k(from, part);
    scatter(form, words, row, quants);
    quants += form.quant_bytes() * kRows;
  }
}

/// The numbers, without a sign, of a row of a panel.
Numbers gather(const BlockForm& form, const Bytes* quants, std::size_t row) {
  Numbers q{};
  const Bytes* const lower = quants + form.upper_bytes() * kRows;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t at = i / 4 * 64 + row * 4 + i % 4;
    q[i] = form.lower == 8 ? lower[at] : lower[at] & 15U;
    q[i + 16] = form.lower == 8 ? lower[at + 256] : lower[at] >> 4U;
  }
  for (Bytes& code : q) {
    code = form.float4 ? static_cast<Bytes>(kTwiceFloat4[code] + form.offset) : code;
  }
  for (std::size_t i = 0; form.upper > 0 && i < kInputs; ++i) {
    const std::size_t group = i / 4;
    const std::size_t place = form.upper == 1 ? group : group % 4 * 2;
    const Bytes byte = quants[(form.upper == 1 ? 0 : group / 4 * 64) + row * 4 + i % 4];
    q[i] = static_cast<Bytes>(q[i] | ((byte >> place) & (form.upper == 1 ? 1U : 3U)) << 4U);
  }
  return q;
}

float half_at(const Bytes* from) {
  std::uint16_t half = 0;
  std::memcpy(&half, from, sizeof(half));
  return std::bit_cast<float>(f32_bits_of_f16(half));
}

/// The j-th of eight pairs of 6-bit scale and minimum in 12 bytes, `stride` apart.
std::pair<unsigned, unsigned> six_bits(const Bytes* packed, std::size_t j, std::size_t stride) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(packed[i * stride]); };
  if (j < 4) {
    return {at(j) & 63U, at(j + 4) & 63U};
  }
  return {(at(j + 4) & 15U) | (at(j - 4) >> 6U) << 4U, (at(j + 4) >> 4U) | (at(j) >> 6U) << 4U};
}

/// Numbers of one row of a panel's block, from its part `part` on.
void decode_part(
    const BlockForm& form, const Bytes* block, std::size_t row, std::size_t part, float* out) {
  const float d = form.float4 ? half_of_e8m0(block[row]) : half_at(block + 2 * row);
  const Bytes* const small = block + (form.minimum ? 4 : 2) * kRows + row;
  const Bytes* const quants = block + (form.head() + part * form.quant_bytes()) * kRows;
  const Numbers q = gather(form, quants, row);
  std::array<float, 2> scale{d, d};  // Of each sixteen.
  float minimum = form.minimum ? half_at(block + 2 * kRows + 2 * row) : 0.0F;
  if (form.small == 12) {
    const auto [s, m] = six_bits(small, part, kRows);
    scale.fill(d * static_cast<float>(s));
    minimum = -(minimum * static_cast<float>(m));
  } else if (form.small == 16) {
    for (std::size_t i = 0; i < 2; ++i) {
      scale[i] = d * static_cast<float>(static_cast<std::int8_t>(small[(2 * part + i) * kRows]));
    }
  }
  for (std::size_t i = 0; i < kInputs; ++i) {
    const float value = scale[i / 16] * static_cast<float>(static_cast<int>(q[i]) - form.offset);
    out[i] = form.minimum ? value + minimum : value;
  }
}

/// Rows that one expert has of a matrix of all; 0 of other matrices.
std::int64_t expert_rows(const ModelSpec& model, Matrix matrix) {
  switch (matrix) {
    case Matrix::kExpertsGate:
    case Matrix::kExpertsUp:
      return model.experts.intermediate;
    case Matrix::kExpertsDown:
      return model.hidden;
    default:
      return 0;
  }
}

}  // namespace

BlockSize block_size(DType dtype) {
  HEDDLE_CHECK(dtype != DType::kStored);
  if (!is_blocks(dtype)) {
    return {.elements = 1, .bytes = static_cast<std::int64_t>(dtype_bytes(dtype))};
  }
  if (is_f8(dtype)) {
    return {.elements = kF8Inputs, .bytes = kF8Bytes};
  }
  const BlockForm form = form_of(dtype);
  const std::size_t bytes = form.head() + form.parts() * form.quant_bytes();
  return {.elements = form.elements, .bytes = static_cast<std::int64_t>(bytes)};
}

std::int64_t row_bytes(DType dtype, std::int64_t columns) {
  const BlockSize size = block_size(dtype);
  HEDDLE_CHECK(columns % size.elements == 0);
  return columns / size.elements * size.bytes;
}

std::uint64_t matrix_bytes(DType dtype, std::int64_t rows, std::int64_t columns) {
  const std::int64_t whole =
      is_blocks(dtype) ? (rows + kPanelRows - 1) / kPanelRows * kPanelRows : rows;
  return static_cast<std::uint64_t>(whole * row_bytes(dtype, columns));
}

void interleave_rows(DType dtype,
                     std::span<const std::byte* const> rows,
                     std::int64_t columns,
                     std::byte* panel) {
  HEDDLE_CHECK(rows.size() <= kRows);
  if (is_f8(dtype)) {
    interleave_f8_rows(rows, columns, panel);
    return;
  }
  const BlockForm form = form_of(dtype);
  const BlockSize size = block_size(dtype);
  auto* out = reinterpret_cast<Bytes*>(panel);
  std::memset(out, 0, kRows * static_cast<std::size_t>(row_bytes(dtype, columns)));
  for (std::int64_t block = 0; block < columns / size.elements; ++block) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      put_block(form, reinterpret_cast<const Bytes*>(rows[row]) + block * size.bytes, row, out);
    }
    out += static_cast<std::size_t>(size.bytes) * kRows;
  }
}

void read_panel_row(
    DType dtype, const std::byte* panel, std::int64_t row, std::int64_t columns, float* numbers) {
  HEDDLE_CHECK(row >= 0 && row < kPanelRows);
  if (is_f8(dtype)) {
    read_f8_row(panel, row, columns, numbers);
    return;
  }
  const BlockForm form = form_of(dtype);
  const BlockSize size = block_size(dtype);
  const auto* block = reinterpret_cast<const Bytes*>(panel);
  for (std::int64_t done = 0; done < columns; done += size.elements) {
    for (std::size_t part = 0; part < form.parts(); ++part, numbers += kInputs) {
      decode_part(form, block, static_cast<std::size_t>(row), part, numbers);
    }
    block += size.bytes * kPanelRows;
  }
}

std::size_t format_count(std::int64_t layers) {
  return 2 + kMatricesOfLayer * static_cast<std::size_t>(layers);
}

std::size_t format_index(Matrix matrix, std::int64_t layer) {
  const auto at = static_cast<std::size_t>(matrix);
  return matrix < Matrix::kQ ? at : at + kMatricesOfLayer * static_cast<std::size_t>(layer);
}

void take_inputs_as_they_are(ModelSpec& model) {
  std::ranges::replace(model.formats, DType::kF8Both, DType::kF8);
}

DType matrix_dtype(
    const ModelSpec& model, DType image, Matrix matrix, std::int64_t layer, std::int64_t columns) {
  if (image != DType::kStored) {
    return matrix == Matrix::kEmbedding ? compute_dtype(image) : image;
  }
  const std::size_t at = format_index(matrix, layer);
  const DType format = at < model.formats.size() ? model.formats[at] : DType::kBf16;
  const bool whole = is_blocks(format) && columns % block_size(format).elements == 0;
  return whole && expert_rows(model, matrix) % kPanelRows == 0 ? format : DType::kBf16;
}

}  // namespace heddle::spec
