#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "store/image_layout.h"
#include "store/image_slices.h"
#include "store/packed_matrix.h"
#include "store/tensor_set.h"

#include <sys/uio.h>

namespace heddle::store {

/// Memory for an image: contiguous in the image's own numbering, scattered over pages in this
/// process's. Byte b of the image is byte b % page_bytes of pages[b / page_bytes].
struct ImagePages {
  std::span<std::byte* const> pages{};
  std::size_t page_bytes = 0;  ///< A multiple of 64, so that no element straddles two pages.
};

/// Makes slices of an image, one after the other, with buffers of its own: each thread has one.
class SliceLoader {
 public:
  /// As LoadOptions::await.
  using Await =
      std::function<Result<void>(std::size_t file, std::uint64_t offset, std::uint64_t bytes)>;

  /// All outlive it.
  SliceLoader(const TensorSet& tensors,
              const ImageLayout& layout,
              ImagePages target,
              const Await& await)
      : tensors_(tensors), layout_(layout), target_(target), await_(await) {}

  /// Fills the slice's bytes, and of int8 the scales of its rows. Fails as load_image().
  Result<void> load(const ImageSlice& slice);

 private:
  /// Rows [row, row + rows) of a source, counted from its first.
  struct Part {
    const ImageTensor& tensor;
    const ImageSource& source;
    const TensorSet::Entry& entry;
    std::uint64_t row = 0;
    std::uint64_t rows = 0;
    std::uint64_t begin = 0;  ///< Where the image has them, but of blocks.
  };

  [[nodiscard]] const TensorSet::Entry& entry_of(const ImageSource& source) const;
  Result<void> load_changed(const Part& part);
  Result<void> load_piece(const Part& part);
  Result<void> load_rows(const Part& part);
  Result<void> read_rows(const Part& part, std::uint64_t first, std::uint64_t rows);
  Result<void> read_packed(const Part& part);
  Result<void> read_in_place(const Part& part, std::uint64_t from, std::uint64_t bytes);
  Result<void> read_converting(const Part& part, std::uint64_t from, std::uint64_t bytes);
  void make_row(const Part& part, const std::byte* stored, std::byte* target);
  void write_panels(const ImageTensor& tensor, std::int64_t first_row);
  void write(std::uint64_t begin, std::span<const std::byte> bytes);
  [[nodiscard]] Result<void> await(const TensorSet::Entry& entry,
                                   std::uint64_t offset,
                                   std::uint64_t bytes) const;

  const TensorSet& tensors_;
  const ImageLayout& layout_;
  ImagePages target_;
  const Await& await_;
  std::vector<std::byte> bounce_{};  ///< As the file has them.
  std::vector<std::byte> rows_{};    ///< Rows as the image has them; of blocks, before panels.
  std::vector<std::byte> panel_{};
  std::vector<float> floats_{};  ///< A row that is being rounded, or a vector that is changed.
  std::vector<float> scales_{};  ///< Of the slice's rows, where they are int8.
  std::vector<iovec> pieces_{};
  const PackedMatrix* packed_ = nullptr;  ///< What the next is of.
  std::optional<PackedRows> packed_rows_{};
};

/// Zeroes bytes [begin, end) of an image.
void zero_image(ImagePages target, std::uint64_t begin, std::uint64_t end);

}  // namespace heddle::store
