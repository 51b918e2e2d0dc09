#include "store/slice_loader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "gguf/gguf_model.h"
#include "spec/block_panels.h"
#include "store/convert.h"
#include "store/quantise.h"

namespace heddle::store {
namespace {

/// Whether a tensor is stored in such blocks, as it was when its image was planned.
bool is_still(const TensorSet::Entry& entry, spec::DType blocks) {
  if (blocks == spec::DType::kF8Both) {
    return entry.packed != nullptr && entry.packed->f8_both();
  }
  return matrix_format(entry.tensor.type) == blocks;
}

/// Whether the file has other numbers than the image: less 1, or logarithms.
bool is_changed(const ImageTensor& tensor, const TensorSet::Entry& entry) {
  return (tensor.less_one || tensor.logarithm) && !entry.whole;
}

/// Whether the elements of a source lie in the file as in the image, and one by one.
bool is_one_piece(const ImageTensor& tensor,
                  const ImageSource& source,
                  const TensorSet::Entry& entry) {
  return tensor.dtype != spec::DType::kI8 && !spec::is_blocks(tensor.dtype) &&
         source.stored_columns == tensor.columns && stored_type_elements(entry.tensor.type) == 1 &&
         entry.interleaved == 0 && entry.packed == nullptr;
}

/// Where the file has row `row` of the image, both counted from the start of some head.
std::uint64_t stored_row(std::uint64_t row, std::uint64_t head) {
  const std::uint64_t within = row % head;
  const bool first_half = within < head / 2;
  return row - within + (first_half ? 2 * within : 2 * (within - head / 2) + 1);
}

std::uint64_t image_row_bytes(const ImageTensor& tensor) {
  return static_cast<std::uint64_t>(spec::row_bytes(tensor.dtype, tensor.columns));
}

/// Image bytes [begin, end) as the pieces of pages that hold them.
class PieceWalker {
 public:
  PieceWalker(ImagePages target, std::uint64_t begin, std::uint64_t end)
      : target_(target), at_(begin), end_(end) {}

  /// The next piece; empty at the end.
  std::span<std::byte> next() {
    const std::uint64_t within = at_ % target_.page_bytes;
    const std::uint64_t bytes = std::min(target_.page_bytes - within, end_ - at_);
    if (bytes == 0) {
      return {};
    }
    std::byte* const page = target_.pages[at_ / target_.page_bytes];
    at_ += bytes;
    return {page + within, bytes};
  }

 private:
  ImagePages target_;
  std::uint64_t at_, end_;
};

}  // namespace

Result<void> SliceLoader::load(const ImageSlice& slice) {
  const ImageTensor& tensor = layout_.tensors[slice.tensor];
  const std::int64_t end = slice.row + slice.rows;
  scales_.clear();
  rows_.clear();
  for (const ImageSource& source : tensor.sources) {
    const std::int64_t from = std::max(slice.row, source.row);
    const std::int64_t to = std::min(end, source.row + source.rows);
    if (from >= to) {
      continue;
    }
    const TensorSet::Entry& entry = entry_of(source);
    const Part part{
        .tensor = tensor,
        .source = source,
        .entry = entry,
        .row = static_cast<std::uint64_t>(from - source.row),
        .rows = static_cast<std::uint64_t>(to - from),
        .begin = tensor.offset + static_cast<std::uint64_t>(from) * image_row_bytes(tensor)};
    const Result<void> status = is_changed(tensor, entry)             ? load_changed(part)
                                : is_one_piece(tensor, source, entry) ? load_piece(part)
                                                                      : load_rows(part);
    if (!status) {
      return status;
    }
  }
  if (spec::is_blocks(tensor.dtype)) {
    write_panels(tensor, slice.row);
  }
  if (tensor.dtype == spec::DType::kI8) {
    const ImageTensor& scales = layout_.tensors[slice.tensor + 1];
    HEDDLE_CHECK(scales.sources.empty() && scales.rows == tensor.rows);
    write(scales.offset + static_cast<std::uint64_t>(slice.row) * sizeof(float),
          std::as_bytes(std::span(scales_)));
  }
  return {};
}

/// The checkpoint's tensor that a source is of, as large as it says.
const TensorSet::Entry& SliceLoader::entry_of(const ImageSource& source) const {
  const TensorSet::Entry& entry = tensors_.at(source.name);
  HEDDLE_CHECK(entry.tensor.bytes == stored_bytes(entry.tensor.type,
                                                  static_cast<std::uint64_t>(
                                                      source.stored_rows * source.stored_columns)));
  return entry;
}

/// Part of a vector of such numbers.
Result<void> SliceLoader::load_changed(const Part& part) {
  const ImageTensor& tensor = part.tensor;
  HEDDLE_CHECK(tensor.columns == 1);
  if (Result<void> read = read_rows(part, part.row, part.rows); !read) {
    return read;
  }
  floats_.resize(part.rows);
  convert(part.entry.tensor.type,
          bounce_.data(),
          spec::DType::kF32,
          reinterpret_cast<std::byte*>(floats_.data()),
          floats_.size());
  for (float& value : floats_) {
    value = tensor.less_one ? value + 1.0F : -std::exp(value);
  }
  write(part.begin, std::as_bytes(std::span(floats_)));
  return {};
}

/// Rows that lie in the file as in the image, one element behind the other.
Result<void> SliceLoader::load_piece(const Part& part) {
  const StoredType type = part.entry.tensor.type;
  HEDDLE_CHECK(can_convert(type, part.tensor.dtype));
  const std::uint64_t row_bytes = stored_row_bytes(part.entry, part.source);
  const std::uint64_t from =
      part.entry.tensor.offset +
      (static_cast<std::uint64_t>(part.source.first_row) + part.row) * row_bytes;
  const std::uint64_t bytes = part.rows * row_bytes;
  if (Result<void> there = await(part.entry, from, bytes); !there) {
    return there;
  }
  return same_bytes(type, part.tensor.dtype) ? read_in_place(part, from, bytes)
                                             : read_converting(part, from, bytes);
}

/// Rows of which some columns are wanted, that are rounded to int8, stored in blocks (which are
/// decoded, or laid in panels as they are), or stored in another order within each head. They are
/// read whole and one behind the other: a disk gives what is between the wanted columns for less
/// than it takes to leave it out. Of heads in another order, all that rows are of.
Result<void> SliceLoader::load_rows(const Part& part) {
  const ImageTensor& tensor = part.tensor;
  const TensorSet::Entry& entry = part.entry;
  if (spec::is_blocks(tensor.dtype) && !is_still(entry, tensor.dtype)) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("load {} of {}: it is {}, not {} any more",
                             entry.tensor.name,
                             tensors_.file_of(entry).path().string(),
                             describe(entry.tensor),
                             spec::dtype_name(tensor.dtype))};
  }
  const auto head = static_cast<std::uint64_t>(std::max<std::int64_t>(1, entry.interleaved));
  HEDDLE_CHECK(static_cast<std::uint64_t>(part.source.rows) % head == 0 &&
               static_cast<std::uint64_t>(part.source.first_row) % head == 0);
  const std::uint64_t first = part.row / head * head;
  const std::uint64_t last = (part.row + part.rows + head - 1) / head * head;
  const Result<void> read =
      entry.packed != nullptr ? read_packed(part) : read_rows(part, first, last - first);
  if (!read) {
    return read;
  }
  const std::uint64_t row_bytes = stored_row_bytes(entry, part.source);
  const bool blocks = spec::is_blocks(tensor.dtype);
  const std::size_t before = blocks ? rows_.size() : 0;  // Blocks wait for the rest of the slice.
  rows_.resize(before + part.rows * image_row_bytes(tensor));
  for (std::uint64_t row = 0; row < part.rows; ++row) {
    const std::uint64_t at = part.row + row - first;
    make_row(part,
             bounce_.data() + (entry.interleaved > 0 ? stored_row(at, head) : at) * row_bytes,
             rows_.data() + before + row * image_row_bytes(tensor));
  }
  if (!blocks) {
    write(part.begin, rows_);
  }
  return {};
}

/// Fills the buffer with rows [first, first + rows) of the source, which lie together in the file.
Result<void> SliceLoader::read_rows(const Part& part, std::uint64_t first, std::uint64_t rows) {
  const std::uint64_t row_bytes = stored_row_bytes(part.entry, part.source);
  const std::uint64_t from =
      part.entry.tensor.offset +
      (static_cast<std::uint64_t>(part.source.first_row) + first) * row_bytes;
  bounce_.resize(rows * row_bytes);
  if (Result<void> there = await(part.entry, from, bounce_.size()); !there) {
    return there;
  }
  return tensors_.file_of(part.entry).read(from, bounce_);
}

/// Fills the buffer with rows of a packed matrix.
Result<void> SliceLoader::read_packed(const Part& part) {
  const ReadPart read = [this](
                            std::size_t file, std::uint64_t offset, std::span<std::byte> target) {
    const Result<void> there = await_ ? await_(file, offset, target.size()) : Result<void>();
    return there ? tensors_.files()[file].read(offset, target) : there;
  };
  const PackedMatrix& matrix = *part.entry.packed;
  if (packed_ != &matrix) {
    Result<PackedRows> opened = PackedRows::open(matrix, read);
    if (!opened) {
      return opened.error();
    }
    packed_ = &matrix;
    packed_rows_.emplace(std::move(*opened));
  }
  bounce_.resize(part.rows * stored_row_bytes(part.entry, part.source));
  return packed_rows_->read(part.source.first_row + static_cast<std::int64_t>(part.row),
                            static_cast<std::int64_t>(part.rows),
                            read,
                            bounce_);
}

Result<void> SliceLoader::read_in_place(const Part& part, std::uint64_t from, std::uint64_t bytes) {
  pieces_.clear();
  PieceWalker walker(target_, part.begin, part.begin + bytes);
  for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
    pieces_.push_back({.iov_base = piece.data(), .iov_len = piece.size()});
  }
  return tensors_.file_of(part.entry).read(from, pieces_);
}

Result<void> SliceLoader::read_converting(const Part& part,
                                          std::uint64_t from,
                                          std::uint64_t bytes) {
  bounce_.resize(bytes);
  if (Result<void> status = tensors_.file_of(part.entry).read(from, bounce_); !status) {
    return status;
  }
  const StoredType type = part.entry.tensor.type;
  const std::uint64_t image_bytes = spec::dtype_bytes(part.tensor.dtype);
  const std::byte* source = bounce_.data();
  PieceWalker walker(target_, part.begin, part.begin + part.rows * image_row_bytes(part.tensor));
  for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
    const std::size_t elements = piece.size() / image_bytes;
    convert(type, source, part.tensor.dtype, piece.data(), elements);
    source += elements * (stored_type_bits(type) / 8);
  }
  return {};
}

/// Makes a row of the image of the stored row. Keeps the scale of an int8 one for the tensor
/// behind.
void SliceLoader::make_row(const Part& part, const std::byte* stored, std::byte* target) {
  const ImageTensor& tensor = part.tensor;
  const StoredType type = part.entry.tensor.type;
  const auto columns = static_cast<std::size_t>(tensor.columns);
  const auto stored_columns = static_cast<std::size_t>(part.source.stored_columns);
  const auto first = static_cast<std::size_t>(part.source.first_column);
  if (spec::is_blocks(tensor.dtype)) {
    std::memcpy(target, stored + stored_bytes(type, first), image_row_bytes(tensor));
    return;
  }
  // A row of blocks is decoded whole: one may begin before the first column that is wanted.
  const bool cut = stored_type_elements(type) > 1 && columns != stored_columns;
  if (!cut) {
    stored += stored_bytes(type, first);
  }
  if (!cut && tensor.dtype != spec::DType::kI8) {
    convert(type, stored, tensor.dtype, target, columns);
    return;
  }
  floats_.resize(cut ? stored_columns : columns);
  auto* const floats = reinterpret_cast<std::byte*>(floats_.data());
  convert(type, stored, spec::DType::kF32, floats, floats_.size());
  const auto wanted = std::span<const float>(floats_).subspan(cut ? first : 0, columns);
  if (tensor.dtype == spec::DType::kI8) {
    scales_.push_back(quantise_row(wanted, {reinterpret_cast<std::int8_t*>(target), columns}));
  } else {
    convert(StoredType::kF32, std::as_bytes(wanted).data(), tensor.dtype, target, columns);
  }
}

/// Writes the rows of a slice, the first of which begins a panel, as panels.
void SliceLoader::write_panels(const ImageTensor& tensor, std::int64_t first_row) {
  constexpr auto kRows = static_cast<std::size_t>(spec::kPanelRows);
  const std::uint64_t row_bytes = image_row_bytes(tensor);
  const std::size_t count = rows_.size() / row_bytes;
  HEDDLE_CHECK(first_row % spec::kPanelRows == 0);
  panel_.resize(kRows * row_bytes);
  std::uint64_t begin = tensor.offset + static_cast<std::uint64_t>(first_row) * row_bytes;
  for (std::size_t row = 0; row < count; row += kRows) {
    std::array<const std::byte*, kRows> rows{};
    const std::size_t some = std::min(kRows, count - row);
    for (std::size_t i = 0; i < some; ++i) {
      rows[i] = rows_.data() + (row + i) * row_bytes;
    }
    spec::interleave_rows(tensor.dtype, std::span(rows).first(some), tensor.columns, panel_.data());
    write(begin, panel_);
    begin += panel_.size();
  }
}

/// Copies bytes to where the image has them from `begin` on.
void SliceLoader::write(std::uint64_t begin, std::span<const std::byte> bytes) {
  PieceWalker walker(target_, begin, begin + bytes.size());
  for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
    std::memcpy(piece.data(), bytes.data(), piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

Result<void> SliceLoader::await(const TensorSet::Entry& entry,
                                std::uint64_t offset,
                                std::uint64_t bytes) const {
  return await_ ? await_(entry.file, offset, bytes) : Result<void>();
}

void zero_image(ImagePages target, std::uint64_t begin, std::uint64_t end) {
  PieceWalker walker(target, begin, end);
  for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
    std::memset(piece.data(), 0, piece.size());
  }
}

}  // namespace heddle::store
