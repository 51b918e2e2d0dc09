#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/image_layout.h"
#include "store/tensor_set.h"

namespace heddle::store {

/// Rows of one tensor of an image, which one thread makes while others make others.
struct ImageSlice {
  std::size_t tensor = 0;  ///< Of ImageLayout::tensors; one that has sources.
  std::int64_t row = 0;    ///< Of that tensor; where it is in blocks, the first of a panel.
  std::int64_t rows = 0;
  /// Bytes from the start of the image that are in place once this and all before it are: where the
  /// next one begins, or the image ends.
  std::uint64_t end = 0;
};

/// Cuts an image into slices, in its order, of about `bytes` in the file or in the image, whichever
/// are more. Larger are those of a single row, or panel, that has more, and those of packed
/// matrices that cannot be read by row (PackedMatrix::by_row()), which stay whole.
///
/// @param tensors  Has all sources of `layout`.
[[nodiscard]] std::vector<ImageSlice> cut_image(const TensorSet& tensors,
                                                const ImageLayout& layout,
                                                std::uint64_t bytes);

/// Bytes of a stored row, of all of its columns.
[[nodiscard]] std::uint64_t stored_row_bytes(const TensorSet::Entry& entry,
                                             const ImageSource& source);

}  // namespace heddle::store
