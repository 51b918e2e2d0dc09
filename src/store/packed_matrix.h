#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "spec/quantisation.h"
#include "store/stored_tensor.h"

namespace heddle::store {

/// A matrix that a checkpoint stores in several tensors: numbers of a few bits, and what they are
/// multiplied with. With code q, scale s and zero z, which inputs of a group share,
///
///     W[r][c] = (q[r][c] - z[r][g(c)]) s[r][g(c)]
///
/// and of kScaled the stored number times its scale. Of kTurned it is the stored number, and of
/// kMxfp4 that times the power of two of its 32.
struct PackedMatrix {
  /// One of its tensors, and in which of the files of the TensorSet it is.
  struct Part {
    StoredTensor tensor{};
    std::size_t file = 0;
  };

  spec::Quantisation how{};
  std::int64_t rows = 0;     ///< Outputs.
  std::int64_t columns = 0;  ///< Inputs.
  Part numbers{};
  Part scales{};
  std::optional<Part> zeros{};   ///< Absent: the middle of the range.
  std::optional<Part> groups{};  ///< The group of each input, where how.ordered.
  /// Of kTurned and kMxfp4: row r is row r turns + turn of what is stored, as several matrices take
  /// turns there. `numbers` and the scales of kMxfp4 are those of all.
  std::int64_t turns = 1;
  std::int64_t turn = 0;

  /// Inputs of a group.
  [[nodiscard]] std::int64_t group() const { return how.group > 0 ? how.group : columns; }
  /// Whether it is FP8 whose rows have one scale each, and inputs of its products were to be FP8.
  [[nodiscard]] bool f8_both() const {
    return how.packing == spec::Packing::kScaled && how.f8_inputs && how.block_columns == 0 &&
           numbers.tensor.type == StoredType::kF8E4M3;
  }
  /// Whether a row's numbers lie together, so that rows can be read without the others.
  [[nodiscard]] bool by_row() const {
    return how.packing == spec::Packing::kPacked || how.packing == spec::Packing::kScaled ||
           how.packing == spec::Packing::kMxfp4;
  }
};

/// What its rows are given as: blocks of the same bits where neighbours share a scale in groups of
/// whole blocks (Q4_0 and Q8_0 of symmetric numbers, Q4_1 else; MXFP4; kF8Scaled), float32
/// otherwise.
[[nodiscard]] StoredType rows_type(const PackedMatrix& matrix);

/// Bytes of one of the files, which hold `numbers` of the rows [first, first + rows), or all where
/// these do not lie together; and all of the others.
struct PartBytes {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
/// What reading those rows reads, in its order.
[[nodiscard]] std::vector<PartBytes> parts_of(const PackedMatrix& matrix,
                                              std::int64_t first,
                                              std::int64_t rows);

/// Fills `target` from an offset of one of the files.
using ReadPart = std::function<Result<void>(
    std::size_t file, std::uint64_t offset, std::span<std::byte> target)>;

/// Reads the rows of a packed matrix. Keeps its scales and zeros, and all of its numbers where a
/// row's do not lie together.
class PackedRows {
 public:
  /// Reads what every row needs. Fails as `read` does; kCorrupt, naming tensor and place, where a
  /// scale is not finite, a group does not exist, or numbers that are said to be symmetric are not.
  static Result<PackedRows> open(const PackedMatrix& matrix, const ReadPart& read);

  /// Rows [first, first + rows) as rows_type(), one behind the other. Fails as `read` does.
  Result<void> read(std::int64_t first,
                    std::int64_t rows,
                    const ReadPart& read,
                    std::span<std::byte> target);

 private:
  explicit PackedRows(const PackedMatrix& matrix);
  Result<void> read_scales(const ReadPart& read);
  Result<void> read_zeros(const ReadPart& read);
  Result<void> read_groups(const ReadPart& read);
  Result<void> read_scaled(std::int64_t first,
                           std::int64_t rows,
                           const ReadPart& read,
                           std::span<std::byte> target);
  Result<void> read_float4(std::int64_t first,
                           std::int64_t rows,
                           const ReadPart& read,
                           std::span<std::byte> target);
  void read_turned(std::int64_t first, std::int64_t rows, std::span<std::byte> target) const;
  /// Blocks of FP8, of codes that were read. kCorrupt, naming tensor and place, where one is no
  /// number: kernels take them for 480.
  Result<void> write_f8(std::int64_t first,
                        std::int64_t rows,
                        std::int64_t block_rows,
                        std::int64_t block_columns,
                        std::byte* target) const;
  Result<void> read_codes(std::int64_t first, std::int64_t rows, const ReadPart& read);
  void write_blocks(std::int64_t row, std::span<const std::uint8_t> codes, std::byte* target) const;
  void write_floats(std::int64_t row, std::span<const std::uint8_t> codes, std::byte* target) const;
  [[nodiscard]] std::uint8_t& code(std::int64_t row, std::int64_t column);
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const;
  [[nodiscard]] std::uint8_t zero(std::int64_t row, std::int64_t group) const;

  PackedMatrix matrix_;
  StoredType type_;
  std::int64_t scale_rows_ = 0;     ///< Of the scales: outputs, or blocks of them, or one for all.
  std::int64_t scale_columns_ = 0;  ///< Groups, or blocks of inputs.
  std::vector<float> scales_{};
  std::vector<std::uint8_t> zeros_{};     ///< By row and group; empty: the middle.
  std::vector<std::int32_t> group_of_{};  ///< By input; empty: neighbours share a group.
  std::vector<std::byte> words_{};        ///< All numbers, where a row's do not lie together.
  std::vector<std::byte> exponents_{};    ///< Scales of the rows of kMxfp4 that are being read.
  std::vector<std::uint8_t> codes_{};     ///< Of the rows that are being read.
};

}  // namespace heddle::store
