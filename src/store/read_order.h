#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/image_layout.h"
#include "store/tensor_set.h"

namespace heddle::store {

/// Bytes of one of the files of a TensorSet, from `begin` to before `end`.
struct FileBytes {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const FileBytes&, const FileBytes&) = default;
};

/// What load_image() reads for `layout`, in its order, so that whoever brings the files brings
/// first what runs first. Of tensors that a model ties together, once each time they are read.
/// @param tensors  As load_image() has them.
[[nodiscard]] std::vector<FileBytes> read_order(const TensorSet& tensors,
                                                const ImageLayout& layout);

}  // namespace heddle::store
