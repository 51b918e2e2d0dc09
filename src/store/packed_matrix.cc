#include "store/packed_matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/half.h"
#include "gguf/blocks.h"
#include "spec/f8_panels.h"
#include "store/convert.h"

namespace heddle::store {
namespace {

using spec::Packing;

constexpr std::int64_t kBlock = 32;
constexpr int kWordBits = 32;
constexpr std::int64_t kRowsAtOnce = 64;  // Few enough for their codes to stay in a cache.
constexpr std::int64_t kGap = 64;         // Between those of rows, so that columns spread over it.
/// Which output the i-th four bits of a word of AWQ are of, and the reverse.
constexpr std::array<int, 8> kAwqPlace = {0, 4, 1, 5, 2, 6, 3, 7};

/// To nearest, ties to even; what is too large becomes infinite.
std::uint16_t f16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0F)) {
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  int exponent = 0;
  (void)std::frexp(magnitude, &exponent);
  // Eleven bits of a normal number; of a subnormal one as many as are above 2^-24.
  const int unit = magnitude == 0 ? -24 : std::max(exponent - 11, -24);
  const auto whole = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // A mantissa that rounds up to 2^11 carries into the exponent by itself.
  return static_cast<std::uint16_t>(sign |
                                    ((static_cast<std::uint32_t>(unit + 24) << 10U) + whole));
}

std::array<float, 256> numbers_of(StoredType type) {
  std::array<float, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto bits = static_cast<std::uint8_t>(i);
    table[i] = type == StoredType::kI8 ? static_cast<float>(std::bit_cast<std::int8_t>(bits))
                                       : spec::f32_of_e4m3(bits);
  }
  return table;
}

std::uint32_t word_at(const std::byte* words, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, words + index * 4, sizeof(word));
  return word;
}

Result<std::vector<std::byte>> read_all(const PackedMatrix::Part& part, const ReadPart& read) {
  std::vector<std::byte> bytes(part.tensor.bytes);
  if (Result<void> status = read(part.file, part.tensor.offset, bytes); !status) {
    return status.error();
  }
  return bytes;
}

/// Codes of a row whose words follow each other: those of a byte from its lowest bits on.
void unpack_row(const std::byte* words, std::uint64_t bytes, int bits, std::uint8_t* codes) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(words);
  if (bits == 8) {
    std::memcpy(codes, from, bytes);
    return;
  }
  for (std::uint64_t i = 0; i < bytes; ++i) {
    codes[2 * i] = from[i] & 15U;
    codes[2 * i + 1] = from[i] >> 4U;
  }
}

/// Bytes of a stored row, of a part that has so many.
std::uint64_t bytes_of_row(const PackedMatrix& matrix, const PackedMatrix::Part& part) {
  return part.tensor.bytes / static_cast<std::uint64_t>(matrix.rows * matrix.turns);
}
std::uint64_t number_bytes(const PackedMatrix& matrix) {
  return bytes_of_row(matrix, matrix.numbers);
}

/// The bytes that rows [first, first + rows) stand in, with those of matrices whose turn is
/// between.
PartBytes bytes_of_rows(const PackedMatrix& matrix,
                        const PackedMatrix::Part& part,
                        std::int64_t first,
                        std::int64_t rows) {
  const std::uint64_t bytes = bytes_of_row(matrix, part);
  const auto at = static_cast<std::uint64_t>(first * matrix.turns + matrix.turn);
  const auto count = static_cast<std::uint64_t>((rows - 1) * matrix.turns + 1);
  const std::uint64_t begin = part.tensor.offset + at * bytes;
  return {part.file, begin, begin + count * bytes};
}

}  // namespace

StoredType rows_type(const PackedMatrix& matrix) {
  const spec::Quantisation& how = matrix.how;
  if (how.packing == Packing::kMxfp4) {
    return stored_type_of(gguf::BlockType::kMxfp4);
  }
  if (how.packing == Packing::kScaled) {
    const bool whole =
        matrix.columns % spec::kF8Inputs == 0 && how.block_columns % spec::kF8Inputs == 0;
    return whole && matrix.numbers.tensor.type == StoredType::kF8E4M3 ? StoredType::kF8Scaled
                                                                      : StoredType::kF32;
  }
  const bool whole = matrix.columns % kBlock == 0 && matrix.group() % kBlock == 0;
  if (how.packing == Packing::kTurned || how.ordered || !whole ||
      (how.bits == 8 && !how.symmetric)) {
    return StoredType::kF32;
  }
  return stored_type_of(how.bits == 8   ? gguf::BlockType::kQ80
                        : how.symmetric ? gguf::BlockType::kQ40
                                        : gguf::BlockType::kQ41);
}

std::vector<PartBytes> parts_of(const PackedMatrix& matrix, std::int64_t first, std::int64_t rows) {
  std::vector<PartBytes> parts;
  if (matrix.how.packing == Packing::kTurned) {
    const PackedMatrix::Part& numbers = matrix.numbers;
    return {{numbers.file, numbers.tensor.offset, numbers.tensor.offset + numbers.tensor.bytes}};
  }
  if (matrix.how.packing == Packing::kMxfp4) {
    return {bytes_of_rows(matrix, matrix.scales, first, rows),
            bytes_of_rows(matrix, matrix.numbers, first, rows)};
  }
  const auto all = [&parts](const PackedMatrix::Part& part) {
    parts.push_back({part.file, part.tensor.offset, part.tensor.offset + part.tensor.bytes});
  };
  all(matrix.scales);
  if (matrix.zeros) {
    all(*matrix.zeros);
  }
  if (matrix.groups) {
    all(*matrix.groups);
  }
  if (!matrix.by_row()) {
    all(matrix.numbers);
    return parts;
  }
  parts.push_back(bytes_of_rows(matrix, matrix.numbers, first, rows));
  return parts;
}

PackedRows::PackedRows(const PackedMatrix& matrix) : matrix_(matrix), type_(rows_type(matrix)) {}

Result<PackedRows> PackedRows::open(const PackedMatrix& matrix, const ReadPart& read) {
  PackedRows rows(matrix);
  const Packing packing = matrix.how.packing;
  Result<void> status = packing == Packing::kMxfp4 || packing == Packing::kTurned
                            ? Result<void>()
                            : rows.read_scales(read);
  if (status) {
    status = rows.read_zeros(read);
  }
  if (status) {
    status = rows.read_groups(read);
  }
  if (status && !matrix.by_row()) {
    Result<std::vector<std::byte>> words = read_all(matrix.numbers, read);
    if (words) {
      rows.words_ = std::move(*words);
    } else {
      status = words.error();
    }
  }
  if (!status) {
    return status.error();
  }
  return rows;
}

Result<void> PackedRows::read_scales(const ReadPart& read) {
  const StoredTensor& tensor = matrix_.scales.tensor;
  const Result<std::vector<std::byte>> bytes = read_all(matrix_.scales, read);
  if (!bytes) {
    return bytes.error();
  }
  const std::uint64_t count = bytes->size() * 8 / stored_type_bits(tensor.type);
  scales_.resize(count);
  convert(tensor.type,
          bytes->data(),
          spec::DType::kF32,
          reinterpret_cast<std::byte*>(scales_.data()),
          count);
  // Blocks have float16, also of a scale times the greatest zero.
  const bool halves = type_ != StoredType::kF32 && type_ != StoredType::kF8Scaled;
  const float most = halves ? 4000.0F : std::numeric_limits<float>::max();
  const auto wrong =
      std::ranges::find_if_not(scales_, [most](float s) { return std::fabs(s) <= most; });
  if (wrong != scales_.end()) {
    return Error{Code::kCorrupt,
                 fmt::format("tensor \"{}\": scale {} is {}; it must be finite, and at most {}",
                             tensor.name,
                             wrong - scales_.begin(),
                             *wrong,
                             most)};
  }
  // AWQ and GPTQ have them by group, then by output.
  const bool turned = !matrix_.by_row();
  const bool matrix_shaped = tensor.shape.size() == 2;
  scale_rows_ = matrix_shaped ? tensor.shape[turned ? 1 : 0] : static_cast<std::int64_t>(count);
  scale_columns_ = matrix_shaped ? tensor.shape[turned ? 0 : 1] : 1;
  if (turned) {
    std::vector<float> by_row(scales_.size());
    for (std::int64_t row = 0; row < scale_rows_; ++row) {
      for (std::int64_t group = 0; group < scale_columns_; ++group) {
        by_row[static_cast<std::size_t>(row * scale_columns_ + group)] =
            scales_[static_cast<std::size_t>(group * scale_rows_ + row)];
      }
    }
    scales_ = std::move(by_row);
  }
  return {};
}

Result<void> PackedRows::read_zeros(const ReadPart& read) {
  if (!matrix_.zeros) {
    return {};
  }
  const Result<std::vector<std::byte>> bytes = read_all(*matrix_.zeros, read);
  if (!bytes) {
    return bytes.error();
  }
  const spec::Quantisation& how = matrix_.how;
  const std::int64_t each = kWordBits / how.bits;
  const std::int64_t groups = scale_columns_;
  const std::uint32_t mask = (1U << static_cast<unsigned>(how.bits)) - 1;
  const auto middle = static_cast<std::uint8_t>(1U << static_cast<unsigned>(how.bits - 1));
  zeros_.resize(static_cast<std::size_t>(matrix_.rows * groups));
  for (std::int64_t row = 0; row < matrix_.rows; ++row) {
    const std::int64_t within = row % each;
    const auto place = static_cast<unsigned>(
        how.bits * (how.packing == Packing::kAwq ? kAwqPlace[static_cast<std::size_t>(within)]
                                                 : static_cast<int>(within)));
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t index = matrix_.by_row() ? row / each * groups + group
                                                  : group * (matrix_.rows / each) + row / each;
      const std::uint32_t stored = (word_at(bytes->data(), index) >> place) & mask;
      // What is stored of GPTQ's first format is one less, modulo the range.
      const auto zero =
          static_cast<std::uint8_t>((stored + static_cast<std::uint32_t>(how.zero_offset)) & mask);
      if (how.symmetric && zero != middle) {
        return Error{Code::kCorrupt,
                     fmt::format("tensor \"{}\": the zero of output {}, group {} is {}, but "
                                 "symmetric numbers have {}",
                                 matrix_.zeros->tensor.name,
                                 row,
                                 group,
                                 zero,
                                 middle)};
      }
      zeros_[static_cast<std::size_t>(row * groups + group)] = zero;
    }
  }
  return {};
}

Result<void> PackedRows::read_groups(const ReadPart& read) {
  if (!matrix_.groups) {
    return {};
  }
  const Result<std::vector<std::byte>> bytes = read_all(*matrix_.groups, read);
  if (!bytes) {
    return bytes.error();
  }
  group_of_.resize(static_cast<std::size_t>(matrix_.columns));
  for (std::size_t i = 0; i < group_of_.size(); ++i) {
    group_of_[i] =
        std::bit_cast<std::int32_t>(word_at(bytes->data(), static_cast<std::int64_t>(i)));
    if (group_of_[i] < 0 || group_of_[i] >= scale_columns_) {
      return Error{Code::kCorrupt,
                   fmt::format("tensor \"{}\": input {} is of group {}, and there are {}",
                               matrix_.groups->tensor.name,
                               i,
                               group_of_[i],
                               scale_columns_)};
    }
  }
  return {};
}

float PackedRows::scale(std::int64_t row, std::int64_t group) const {
  return scales_[static_cast<std::size_t>(row * scale_columns_ + group)];
}

std::uint8_t PackedRows::zero(std::int64_t row, std::int64_t group) const {
  return zeros_.empty()
             ? static_cast<std::uint8_t>(1U << static_cast<unsigned>(matrix_.how.bits - 1))
             : zeros_[static_cast<std::size_t>(row * scale_columns_ + group)];
}

Result<void> PackedRows::read(std::int64_t first,
                              std::int64_t rows,
                              const ReadPart& read,
                              std::span<std::byte> target) {
  const std::uint64_t row_bytes = stored_bytes(type_, static_cast<std::uint64_t>(matrix_.columns));
  HEDDLE_CHECK(target.size() == static_cast<std::uint64_t>(rows) * row_bytes);
  if (matrix_.how.packing == Packing::kScaled) {
    return read_scaled(first, rows, read, target);
  }
  if (matrix_.how.packing == Packing::kMxfp4) {
    return read_float4(first, rows, read, target);
  }
  if (matrix_.how.packing == Packing::kTurned) {
    read_turned(first, rows, target);
    return {};
  }
  const auto columns = static_cast<std::size_t>(matrix_.columns);
  std::byte* place = target.data();
  for (std::int64_t done = 0; done < rows; done += kRowsAtOnce) {
    const std::int64_t some = std::min(kRowsAtOnce, rows - done);
    if (Result<void> status = read_codes(first + done, some, read); !status) {
      return status;
    }
    for (std::int64_t row = 0; row < some; ++row, place += row_bytes) {
      const std::span<const std::uint8_t> codes(&code(row, 0), columns);
      if (type_ == StoredType::kF32) {
        write_floats(first + done + row, codes, place);
      } else {
        write_blocks(first + done + row, codes, place);
      }
    }
  }
  return {};
}

std::uint8_t& PackedRows::code(std::int64_t row, std::int64_t column) {
  return codes_[static_cast<std::size_t>(row * (matrix_.columns + kGap) + column)];
}

Result<void> PackedRows::read_scaled(std::int64_t first,
                                     std::int64_t rows,
                                     const ReadPart& read,
                                     std::span<std::byte> target) {
  const PackedMatrix::Part& numbers = matrix_.numbers;
  const auto columns = static_cast<std::uint64_t>(matrix_.columns);
  codes_.resize(static_cast<std::uint64_t>(rows) * columns);
  if (Result<void> status =
          read(numbers.file,
               numbers.tensor.offset + static_cast<std::uint64_t>(first) * columns,
               std::as_writable_bytes(std::span(codes_)));
      !status) {
    return status;
  }
  // One scale for all, one a row, or one for each block.
  const bool blocks = scale_columns_ > 1 || matrix_.how.block_columns > 0;
  const std::int64_t block_rows = blocks            ? matrix_.how.block_rows
                                  : scale_rows_ > 1 ? 1
                                                    : matrix_.rows;
  const std::int64_t block_columns = blocks ? matrix_.how.block_columns : matrix_.columns;
  if (type_ == StoredType::kF8Scaled) {
    return write_f8(first, rows, block_rows, block_columns, target.data());
  }
  const std::array<float, 256> table = numbers_of(numbers.tensor.type);
  std::vector<float> made(columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint8_t* codes = codes_.data() + static_cast<std::uint64_t>(row) * columns;
    for (std::int64_t column = 0; column < matrix_.columns; ++column) {
      made[static_cast<std::size_t>(column)] =
          table[codes[column]] * scale((first + row) / block_rows, column / block_columns);
    }
    std::memcpy(target.data() + static_cast<std::uint64_t>(row) * columns * sizeof(float),
                made.data(),
                columns * sizeof(float));
  }
  return {};
}

Result<void> PackedRows::read_float4(std::int64_t first,
                                     std::int64_t rows,
                                     const ReadPart& read,
                                     std::span<std::byte> target) {
  if (rows == 0) {
    return {};
  }
  const auto fill = [&](const PackedMatrix::Part& part, std::vector<std::byte>& bytes) {
    const PartBytes from = bytes_of_rows(matrix_, part, first, rows);
    bytes.resize(from.end - from.begin);
    return read(from.file, from.begin, bytes);
  };
  Result<void> status = fill(matrix_.scales, exponents_);
  if (status) {
    status = fill(matrix_.numbers, words_);
  }
  if (!status) {
    return status;
  }
  const auto blocks = static_cast<std::size_t>(matrix_.columns / kBlock);
  const auto step = static_cast<std::size_t>(matrix_.turns) * blocks;
  std::byte* out = target.data();
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    for (std::size_t block = 0; block < blocks; ++block) {
      *out++ = exponents_[row * step + block];
      // Neighbours share a byte here; in a block of GGUF numbers i and i + 16 do.
      std::array<std::uint8_t, kBlock> codes{};
      const std::byte* const numbers = words_.data() + (row * step + block) * kBlock / 2;
      unpack_row(numbers, kBlock / 2, 4, codes.data());
      for (std::size_t i = 0; i < kBlock / 2; ++i) {
        *out++ = static_cast<std::byte>(codes[i] | (codes[i + kBlock / 2] << 4U));
      }
    }
  }
  return {};
}

void PackedRows::read_turned(std::int64_t first,
                             std::int64_t rows,
                             std::span<std::byte> target) const {
  const StoredType type = matrix_.numbers.tensor.type;
  const std::uint64_t bytes = stored_type_bits(type) / 8;
  const std::int64_t stored_rows = matrix_.rows * matrix_.turns;
  const std::int64_t begin = first * matrix_.turns + matrix_.turn;
  std::vector<float> line(static_cast<std::size_t>(rows * matrix_.turns - matrix_.turn));
  for (std::int64_t column = 0; column < matrix_.columns; ++column) {
    const std::uint64_t from = static_cast<std::uint64_t>(column * stored_rows + begin) * bytes;
    convert(type,
            words_.data() + from,
            spec::DType::kF32,
            reinterpret_cast<std::byte*>(line.data()),
            line.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto to = static_cast<std::uint64_t>(row * matrix_.columns + column);
      std::memcpy(target.data() + to * sizeof(float),
                  &line[static_cast<std::size_t>(row * matrix_.turns)],
                  sizeof(float));
    }
  }
}

Result<void> PackedRows::write_f8(std::int64_t first,
                                  std::int64_t rows,
                                  std::int64_t block_rows,
                                  std::int64_t block_columns,
                                  std::byte* target) const {
  const std::uint8_t* codes = codes_.data();
  for (std::int64_t row = first; row < first + rows; ++row) {
    for (std::int64_t column = 0; column < matrix_.columns; column += spec::kF8Inputs) {
      const std::span<const std::uint8_t> block(codes, static_cast<std::size_t>(spec::kF8Inputs));
      const auto nan =
          std::ranges::find_if(block, [](std::uint8_t c) { return (c & 0x7FU) == 0x7FU; });
      if (nan != block.end()) {
        return Error{Code::kCorrupt,
                     fmt::format("tensor \"{}\": output {}, input {} is not a number",
                                 matrix_.numbers.tensor.name,
                                 row,
                                 column + (nan - block.begin()))};
      }
      const float own = scale(row / block_rows, column / block_columns);
      std::memcpy(target, &own, sizeof(own));
      std::memcpy(target + sizeof(own), block.data(), block.size());
      target += spec::kF8Bytes;
      codes += spec::kF8Inputs;
    }
  }
  return {};
}

Result<void> PackedRows::read_codes(std::int64_t first, std::int64_t rows, const ReadPart& read) {
  const std::int64_t columns = matrix_.columns;
  const int bits = matrix_.how.bits;
  const std::int64_t each = kWordBits / bits;
  const auto mask = static_cast<std::uint8_t>((1U << static_cast<unsigned>(bits)) - 1);
  codes_.resize(static_cast<std::size_t>(rows * (columns + kGap)));
  if (matrix_.how.packing == Packing::kPacked) {
    const std::uint64_t row_bytes = number_bytes(matrix_);
    words_.resize(static_cast<std::uint64_t>(rows) * row_bytes);
    const std::uint64_t begin =
        matrix_.numbers.tensor.offset + static_cast<std::uint64_t>(first) * row_bytes;
    if (Result<void> status = read(matrix_.numbers.file, begin, words_); !status) {
      return status;
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      unpack_row(words_.data() + static_cast<std::uint64_t>(row) * row_bytes,
                 row_bytes,
                 bits,
                 &code(row, 0));
    }
    return {};
  }
  if (matrix_.how.packing == Packing::kGptq) {
    for (std::int64_t word = 0; word < columns / each; ++word) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::uint32_t left = word_at(words_.data(), word * matrix_.rows + first + row);
        for (std::int64_t i = 0; i < each; ++i, left >>= static_cast<unsigned>(bits)) {
          code(row, word * each + i) = static_cast<std::uint8_t>(left) & mask;
        }
      }
    }
    return {};
  }
  // AWQ: words that the first and the last of the rows are in may have others too.
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t word = first / each; word * each < first + rows; ++word) {
      const std::uint32_t eight = word_at(words_.data(), column * (matrix_.rows / each) + word);
      const std::int64_t row = word * each - first;
      for (std::int64_t i = std::max<std::int64_t>(0, -row); i < std::min(each, rows - row); ++i) {
        const auto place = static_cast<unsigned>(bits * kAwqPlace[static_cast<std::size_t>(i)]);
        code(row + i, column) = static_cast<std::uint8_t>(eight >> place) & mask;
      }
    }
  }
  return {};
}

void PackedRows::write_floats(std::int64_t row,
                              std::span<const std::uint8_t> codes,
                              std::byte* target) const {
  const std::int64_t group = matrix_.group();
  for (std::size_t column = 0; column < codes.size(); ++column) {
    const std::int64_t of =
        group_of_.empty() ? static_cast<std::int64_t>(column) / group : group_of_[column];
    const float value =
        static_cast<float>(int{codes[column]} - int{zero(row, of)}) * scale(row, of);
    std::memcpy(target + column * sizeof(float), &value, sizeof(value));
  }
}

void PackedRows::write_blocks(std::int64_t row,
                              std::span<const std::uint8_t> codes,
                              std::byte* target) const {
  const auto put = [&target](std::uint16_t half) {
    std::memcpy(target, &half, sizeof(half));
    target += sizeof(half);
  };
  const bool minimum = type_ == stored_type_of(gguf::BlockType::kQ41);
  for (std::size_t column = 0; column < codes.size(); column += kBlock) {
    const std::int64_t group = static_cast<std::int64_t>(column) / matrix_.group();
    const float scaled = scale(row, group);
    put(f16_of(scaled));
    if (minimum) {
      put(f16_of(-static_cast<float>(zero(row, group)) * scaled));
    }
    const std::uint8_t* const block = codes.data() + column;
    if (matrix_.how.bits == 8) {
      for (std::int64_t i = 0; i < kBlock; ++i) {
        *target++ = static_cast<std::byte>(block[i] - 128);
      }
      continue;
    }
    for (std::int64_t i = 0; i < kBlock / 2; ++i) {
      *target++ = static_cast<std::byte>(block[i] | (block[i + kBlock / 2] << 4));
    }
  }
}

}  // namespace heddle::store
