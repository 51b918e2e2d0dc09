#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/dtype.h"
#include "spec/model_spec.h"

/// Matrices whose numbers share scales in blocks, as GGUF files have them, and how they lie in an
/// image: rows in panels of sixteen, whose blocks are interleaved so that a vector register has the
/// same four inputs of each row. A panel has as many bytes as its rows have in the file. Those of
/// FP8 are in f8_panels.h; the others so:
///
///     panel        blocks of its rows: the first of each, the second of each, ...
///     of 32        scales [minima] {quants}
///     of 256       scales [minima] small scales {quants} x 8
///     scales       float16 by row; minima likewise (Q4_1, Q5_1, Q4_K, Q5_K); of MXFP4 a byte by
///                  row, the exponent of a power of two
///     small        byte after byte of the block's, each by row: 12 (Q4_K, Q5_K) or 16 (Q6_K)
///     quants       of 32 inputs: [upper bits] lower bits
///     lower bits   of 4: byte 64 p + 4 r + i has inputs 4 p + i and 16 + 4 p + i of row r;
///                  (of MXFP4 the codes of kTwiceFloat4, base/half.h);
///                  of 8 (Q8_0): byte 64 g + 4 r + i has input 4 g + i, plus 128
///     upper bits   1 each (Q5): bit g of byte 4 r + i is of input 4 g + i;
///                  2 each (Q6): bits 2 (g % 4) of byte 64 (g / 4) + 4 r + i
namespace heddle::spec {

/// Rows of a panel.
inline constexpr std::int64_t kPanelRows = 16;

/// Numbers that share a block, and its bytes; of plain numbers one. Requires dtype != kStored.
struct BlockSize {
  std::int64_t elements = 1;
  std::int64_t bytes = 0;
};
[[nodiscard]] BlockSize block_size(DType dtype);

/// Bytes of a row of `columns` numbers, a whole number of blocks.
[[nodiscard]] std::int64_t row_bytes(DType dtype, std::int64_t columns);

/// Bytes of a matrix in an image: of blocks with rows up to a whole panel.
[[nodiscard]] std::uint64_t matrix_bytes(DType dtype, std::int64_t rows, std::int64_t columns);

/// Makes a panel of `rows.size()` <= kPanelRows rows of `columns` numbers, which point to blocks as
/// files have them; rows that are missing become zeros. `panel` has kPanelRows row_bytes(). Neither
/// need be aligned. Requires is_blocks(dtype).
void interleave_rows(DType dtype,
                     std::span<const std::byte* const> rows,
                     std::int64_t columns,
                     std::byte* panel);

/// Row `row` of a panel as float32, to the bit what gguf::decode() makes of its blocks.
void read_panel_row(
    DType dtype, const std::byte* panel, std::int64_t row, std::int64_t columns, float* numbers);

/// The matrices of a model, each of which may have a type of its own. With experts kGate, kUp and
/// kDown are of the MLP that all tokens share.
enum class Matrix : std::uint8_t {
  kEmbedding,
  kHead,
  kQ,
  kK,
  kV,
  kOut,
  kGate,
  kUp,
  kDown,
  kExpertsGate,
  kExpertsUp,
  kExpertsDown
};

/// How many ModelSpec::formats has for a model of so many layers.
[[nodiscard]] std::size_t format_count(std::int64_t layers);
/// Where it has that of a matrix; `layer` counts for those of layers.
[[nodiscard]] std::size_t format_index(Matrix matrix, std::int64_t layer);

/// Makes kF8 of kF8Both: no product rounds its inputs to FP8.
void take_inputs_as_they_are(ModelSpec& model);

/// What a matrix of `columns` own columns is in an image of `image`: that, or of kStored what
/// model.formats says. Blocks that would be cut, as a shard has a part of each row, are bfloat16,
/// and so are those of experts where two would share a panel.
/// The embedding is compute_dtype() of what is not kStored.
[[nodiscard]] DType matrix_dtype(
    const ModelSpec& model, DType image, Matrix matrix, std::int64_t layer, std::int64_t columns);

}  // namespace heddle::spec
