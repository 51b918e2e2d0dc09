#include "store/read_order.h"

#include "store/image_slices.h"
#include "store/packed_matrix.h"

namespace heddle::store {

std::vector<FileBytes> read_order(const TensorSet& tensors, const ImageLayout& layout) {
  std::vector<FileBytes> order;
  for (const ImageTensor& tensor : layout.tensors) {
    for (const ImageSource& source : tensor.sources) {
      const TensorSet::Entry& entry = tensors.at(source.name);
      if (entry.packed != nullptr) {
        for (const PartBytes& part : parts_of(*entry.packed, source.first_row, source.rows)) {
          order.push_back({.file = part.file, .begin = part.begin, .end = part.end});
        }
        continue;
      }
      // Rows are read whole, where only some of their columns are wanted too.
      const std::uint64_t row_bytes = stored_row_bytes(entry, source);
      const std::uint64_t begin =
          entry.tensor.offset + static_cast<std::uint64_t>(source.first_row) * row_bytes;
      const std::uint64_t end = begin + static_cast<std::uint64_t>(source.rows) * row_bytes;
      if (!order.empty() && order.back().file == entry.file && order.back().end == begin) {
        order.back().end = end;
      } else {
        order.push_back({.file = entry.file, .begin = begin, .end = end});
      }
    }
  }
  return order;
}

}  // namespace heddle::store
