#include "store/image_slices.h"

#include <algorithm>

#include "spec/block_panels.h"
#include "store/packed_matrix.h"

namespace heddle::store {
namespace {

/// Whether a slice must not end between two rows of this source.
bool is_whole(const TensorSet::Entry& entry) {
  return entry.packed != nullptr && !entry.packed->by_row();
}

std::int64_t round_up(std::int64_t rows, std::int64_t to) {
  return (rows + to - 1) / to * to;
}

/// Cuts one tensor, whose slices end at its end.
class TensorCut {
 public:
  TensorCut(const TensorSet& tensors, const ImageTensor& tensor, std::uint64_t bytes)
      : tensors_(tensors),
        tensor_(tensor),
        panel_(spec::is_blocks(tensor.dtype) ? spec::kPanelRows : 1) {
    auto row_bytes = static_cast<std::uint64_t>(spec::row_bytes(tensor.dtype, tensor.columns));
    for (const ImageSource& source : tensor.sources) {
      row_bytes = std::max(row_bytes, stored_row_bytes(tensors.at(source.name), source));
    }
    const auto rows = static_cast<std::int64_t>(bytes / row_bytes);
    step_ = std::max(panel_, rows / panel_ * panel_);
  }

  /// Where a slice ends that begins at `row`.
  [[nodiscard]] std::int64_t end_of(std::int64_t row) const {
    std::int64_t end = row + step_;
    for (const ImageSource& source : tensor_.sources) {  // Ascending.
      const bool within = source.row < end && end < source.row + source.rows;
      if (within && is_whole(tensors_.at(source.name))) {
        const bool before = source.row > row && source.row % panel_ == 0;
        end = before ? source.row : round_up(source.row + source.rows, panel_);
      }
    }
    return std::min(end, tensor_.rows);
  }

 private:
  const TensorSet& tensors_;
  const ImageTensor& tensor_;
  std::int64_t panel_;  ///< Slices begin with a multiple of so many rows.
  std::int64_t step_ = 1;
};

}  // namespace

std::vector<ImageSlice> cut_image(const TensorSet& tensors,
                                  const ImageLayout& layout,
                                  std::uint64_t bytes) {
  std::vector<ImageSlice> slices;
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const ImageTensor& tensor = layout.tensors[i];
    if (!slices.empty() && !tensor.sources.empty()) {
      slices.back().end = tensor.offset;
    }
    if (tensor.sources.empty()) {
      continue;  // Scales, which come with the rows before.
    }
    const TensorCut cut(tensors, tensor, bytes);
    const auto row_bytes =
        static_cast<std::uint64_t>(spec::row_bytes(tensor.dtype, tensor.columns));
    for (std::int64_t row = 0; row < tensor.rows;) {
      const std::int64_t end = cut.end_of(row);
      slices.push_back({.tensor = i,
                        .row = row,
                        .rows = end - row,
                        .end = tensor.offset + static_cast<std::uint64_t>(end) * row_bytes});
      row = end;
    }
  }
  if (!slices.empty()) {
    slices.back().end = layout.bytes;
  }
  return slices;
}

std::uint64_t stored_row_bytes(const TensorSet::Entry& entry, const ImageSource& source) {
  return stored_bytes(entry.tensor.type, static_cast<std::uint64_t>(source.stored_columns));
}

}  // namespace heddle::store
