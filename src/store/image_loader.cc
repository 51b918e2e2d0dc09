#include "store/image_loader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "gguf/gguf_model.h"
#include "spec/block_panels.h"
#include "store/convert.h"
#include "store/packed_matrix.h"
#include "store/quantise.h"

namespace heddle::store {
namespace {

constexpr std::uint64_t kReadBytes = 4U << 20U;  // Where a bigger pread gains nothing more.
constexpr std::uint64_t kReportBytes = 8U << 20U;
constexpr std::uint64_t kPacedReadBytesMin = 64U << 10U;
constexpr std::uint64_t kPacedReadsPerSecond = 50;  // Fine enough for stages to arrive in turn.
constexpr std::uint64_t kReadAheadBytes = 8U << 20U;

/// Whether a tensor is stored in such blocks, as it was when its image was planned.
bool is_still(const TensorSet::Entry& entry, spec::DType blocks) {
  if (blocks == spec::DType::kF8Both) {
    return entry.packed != nullptr && entry.packed->f8_both();
  }
  return matrix_format(entry.tensor.type) == blocks;
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

/// Holds a load to a rate: byte b is not in place before b / rate after the start.
class Pacer {
 public:
  Pacer(std::uint64_t bytes_per_second, const std::stop_token& stop)
      : rate_(bytes_per_second), stop_(stop), start_(std::chrono::steady_clock::now()) {}

  /// Waits until `bytes` are due, or somebody asks to stop.
  void wait(std::uint64_t bytes) {
    if (rate_ == 0) {
      return;
    }
    const std::chrono::duration<double> due(static_cast<double>(bytes) /
                                            static_cast<double>(rate_));
    std::unique_lock lock(mutex_);
    const auto until =
        start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(due);
    (void)wake_.wait_until(
        lock, stop_, until, [] { return false; });  // Only time or a stop ends it.
  }

 private:
  std::uint64_t rate_;
  const std::stop_token& stop_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_{};
  std::condition_variable_any wake_{};
};

class Loader {
 public:
  Loader(const TensorSet& tensors,
         const ImageLayout& layout,
         ImagePages target,
         const LoadOptions& options)
      : tensors_(tensors),
        layout_(layout),
        target_(target),
        options_(options),
        pacer_(options.bytes_per_second, options.stop),
        read_bytes_(kReadBytes) {
    if (options.bytes_per_second > 0) {
      read_bytes_ = std::clamp(options.bytes_per_second / kPacedReadsPerSecond / 64 * 64,
                               kPacedReadBytesMin,
                               kReadBytes);
    }
  }

  Result<void> run() {
    for (const ImageTensor& tensor : layout_.tensors) {
      if (Result<void> filled = fill(tensor); !filled) {
        return filled;
      }
      advance(tensor.offset + tensor.bytes);
    }
    fill_zero(pages_for(layout_.bytes, target_.page_bytes) * target_.page_bytes);
    return {};
  }

 private:
  Result<void> fill(const ImageTensor& tensor) {
    fill_zero(tensor.offset);
    for (const ImageSource& source : tensor.sources) {
      const Result<void> status = is_changed(tensor, source)     ? load_changed(tensor, source)
                                  : is_one_piece(tensor, source) ? load_piece(tensor, source)
                                                                 : load_rows(tensor, source);
      if (!status) {
        return status;
      }
    }
    if (spec::is_blocks(tensor.dtype)) {
      write_panels(tensor, true);
    }
    if (tensor.sources.empty()) {
      HEDDLE_CHECK(std::cmp_equal(scales_.size(), tensor.rows));
      write(tensor.offset, std::as_bytes(std::span(scales_)));
      scales_.clear();
    }
    return {};
  }

  /// The checkpoint's tensor that a source is of, as large as it says.
  [[nodiscard]] const TensorSet::Entry& entry_of(const ImageSource& source) const {
    const TensorSet::Entry* entry = tensors_.find(source.name);
    HEDDLE_CHECK(entry != nullptr);
    HEDDLE_CHECK(
        entry->tensor.bytes ==
        stored_bytes(entry->tensor.type,
                     static_cast<std::uint64_t>(source.stored_rows * source.stored_columns)));
    return *entry;
  }

  /// Whether the file has other numbers than the image: less 1, or logarithms.
  [[nodiscard]] bool is_changed(const ImageTensor& tensor, const ImageSource& source) const {
    return (tensor.less_one || tensor.logarithm) && !entry_of(source).whole;
  }

  /// A vector of such numbers.
  Result<void> load_changed(const ImageTensor& tensor, const ImageSource& source) {
    const TensorSet::Entry& entry = entry_of(source);
    const File& file = tensors_.file_of(entry);
    HEDDLE_CHECK(tensor.columns == 1 && source.rows == source.stored_rows);
    if (Result<void> there = await(entry, entry.tensor.offset, entry.tensor.bytes); !there) {
      return there;
    }
    bounce_.resize(entry.tensor.bytes);
    if (Result<void> status = file.read(entry.tensor.offset, bounce_); !status) {
      return status;
    }
    floats_.resize(static_cast<std::size_t>(source.rows));
    convert(entry.tensor.type,
            bounce_.data(),
            spec::DType::kF32,
            reinterpret_cast<std::byte*>(floats_.data()),
            floats_.size());
    for (float& value : floats_) {
      value = tensor.less_one ? value + 1.0F : -std::exp(value);
    }
    write(tensor.offset + static_cast<std::uint64_t>(source.row) * sizeof(float),
          std::as_bytes(std::span(floats_)));
    return {};
  }

  /// Whether the elements of a source lie in the file as in the image, and one by one.
  [[nodiscard]] bool is_one_piece(const ImageTensor& tensor, const ImageSource& source) const {
    const TensorSet::Entry& entry = entry_of(source);
    return tensor.dtype != spec::DType::kI8 && !spec::is_blocks(tensor.dtype) &&
           source.stored_columns == tensor.columns &&
           stored_type_elements(entry.tensor.type) == 1 && entry.interleaved == 0 &&
           entry.packed == nullptr;
  }

  /// Rows that lie in the file as in the image, one element behind the other.
  Result<void> load_piece(const ImageTensor& tensor, const ImageSource& source) {
    const TensorSet::Entry* entry = &entry_of(source);
    const std::uint64_t stored_bytes = stored_type_bits(entry->tensor.type) / 8;
    const std::uint64_t image_bytes = spec::dtype_bytes(tensor.dtype);
    const auto columns = static_cast<std::uint64_t>(tensor.columns);
    const std::uint64_t count = static_cast<std::uint64_t>(source.rows) * columns;
    HEDDLE_CHECK(can_convert(entry->tensor.type, tensor.dtype));
    const std::uint64_t first =
        entry->tensor.offset +
        static_cast<std::uint64_t>(source.first_row) * columns * stored_bytes;
    const std::uint64_t base =
        tensor.offset + static_cast<std::uint64_t>(source.row) * columns * image_bytes;
    const std::uint64_t step = read_bytes_ / std::max(stored_bytes, image_bytes);
    const File& file = tensors_.file_of(*entry);
    for (std::uint64_t done = 0; done < count; done += step) {
      if (options_.stop.stop_requested()) {
        return cancelled(file);
      }
      const std::uint64_t elements = std::min(step, count - done);
      const std::uint64_t from = first + done * stored_bytes;
      const std::uint64_t begin = base + done * image_bytes;
      const std::uint64_t end = begin + elements * image_bytes;
      if (Result<void> there = await(*entry, from, elements * stored_bytes); !there) {
        return there;
      }
      file.will_read(from + elements * stored_bytes, kReadAheadBytes);
      const Result<void> status = same_bytes(entry->tensor.type, tensor.dtype)
                                      ? read_in_place(file, from, begin, end)
                                      : read_converting(file, from, *entry, tensor, begin, end);
      if (!status) {
        return status;
      }
      pacer_.wait(end);
      advance(end);
    }
    return {};
  }

  /// Rows of which some columns are wanted, that are rounded to int8, stored in blocks (which are
  /// decoded, or laid in panels as they are), or stored in another order within each head. They are
  /// read whole and one behind the other, a buffer at a time: a disk gives what is between the
  /// wanted columns for less than it takes to leave it out. Of heads in another order, so many that
  /// a buffer ends with one.
  Result<void> load_rows(const ImageTensor& tensor, const ImageSource& source) {
    const TensorSet::Entry& entry = entry_of(source);
    const std::uint64_t row_bytes =
        stored_bytes(entry.tensor.type, static_cast<std::uint64_t>(source.stored_columns));
    const auto image_row_bytes =
        static_cast<std::uint64_t>(spec::row_bytes(tensor.dtype, tensor.columns));
    if (spec::is_blocks(tensor.dtype) && !is_still(entry, tensor.dtype)) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("load {} of {}: it is {}, not {} any more",
                               entry.tensor.name,
                               tensors_.file_of(entry).path().string(),
                               describe(entry.tensor),
                               spec::dtype_name(tensor.dtype))};
    }
    const auto count = static_cast<std::uint64_t>(source.rows);
    const std::uint64_t first =
        entry.tensor.offset + static_cast<std::uint64_t>(source.first_row) * row_bytes;
    const auto head = static_cast<std::uint64_t>(std::max<std::int64_t>(1, entry.interleaved));
    const std::uint64_t step =
        std::max<std::uint64_t>(1, read_bytes_ / std::max(row_bytes, image_row_bytes) / head) *
        head;
    HEDDLE_CHECK(count % head == 0 && static_cast<std::uint64_t>(source.first_row) % head == 0);
    std::uint64_t begin = tensor.offset + static_cast<std::uint64_t>(source.row) * image_row_bytes;
    for (std::uint64_t done = 0; done < count; done += step) {
      if (options_.stop.stop_requested()) {
        return cancelled(tensors_.file_of(entry));
      }
      const std::uint64_t rows = std::min(step, count - done);
      bounce_.resize(rows * row_bytes);
      const Result<void> read =
          entry.packed != nullptr
              ? read_packed(entry, static_cast<std::uint64_t>(source.first_row) + done, rows)
              : read_rows(entry, first + done * row_bytes);
      if (!read) {
        return read;
      }
      rows_.resize(rows * image_row_bytes);
      for (std::uint64_t row = 0; row < rows; ++row) {
        make_row(entry.tensor.type,
                 bounce_.data() + stored_row(row, entry.interleaved) * row_bytes,
                 source,
                 tensor,
                 rows_.data() + row * image_row_bytes);
      }
      if (spec::is_blocks(tensor.dtype)) {
        panel_rows_.insert(panel_rows_.end(), rows_.begin(), rows_.end());
        begin = write_panels(tensor, false);
      } else {
        write(begin, rows_);
        begin += rows_.size();
      }
      pacer_.wait(begin);
      advance(begin);
    }
    return {};
  }

  /// Fills the buffer with rows that lie together in the file.
  Result<void> read_rows(const TensorSet::Entry& entry, std::uint64_t from) {
    if (Result<void> there = await(entry, from, bounce_.size()); !there) {
      return there;
    }
    const File& file = tensors_.file_of(entry);
    file.will_read(from + bounce_.size(), kReadAheadBytes);
    return file.read(from, bounce_);
  }

  /// Fills the buffer with rows of a packed matrix.
  Result<void> read_packed(const TensorSet::Entry& entry, std::uint64_t first, std::uint64_t rows) {
    const ReadPart read = [this](
                              std::size_t file, std::uint64_t offset, std::span<std::byte> target) {
      const Result<void> there =
          options_.await ? options_.await(file, offset, target.size()) : Result<void>();
      return there ? tensors_.files()[file].read(offset, target) : there;
    };
    if (packed_ != entry.packed.get()) {
      Result<PackedRows> opened = PackedRows::open(*entry.packed, read);
      if (!opened) {
        return opened.error();
      }
      packed_ = entry.packed.get();
      packed_rows_.emplace(std::move(*opened));
    }
    return packed_rows_->read(
        static_cast<std::int64_t>(first), static_cast<std::int64_t>(rows), read, bounce_);
  }

  /// Writes the panels that rows have come for, at the end of a tensor the last one too. Returns
  /// where the image goes on.
  std::uint64_t write_panels(const ImageTensor& tensor, bool last) {
    const auto row_bytes = static_cast<std::size_t>(spec::row_bytes(tensor.dtype, tensor.columns));
    constexpr auto kRows = static_cast<std::size_t>(spec::kPanelRows);
    std::size_t left = panel_rows_.size() / row_bytes;
    const std::byte* from = panel_rows_.data();
    panel_.resize(kRows * row_bytes);
    while (left >= kRows || (last && left > 0)) {
      std::array<const std::byte*, kRows> rows{};
      const std::size_t count = std::min(left, kRows);
      for (std::size_t i = 0; i < count; ++i, from += row_bytes) {
        rows[i] = from;
      }
      spec::interleave_rows(
          tensor.dtype, std::span(rows).first(count), tensor.columns, panel_.data());
      write(tensor.offset + panels_ * panel_.size(), panel_);
      ++panels_;
      left -= count;
    }
    panel_rows_.erase(panel_rows_.begin(), panel_rows_.begin() + (from - panel_rows_.data()));
    const std::uint64_t end = tensor.offset + panels_ * panel_.size();
    panels_ = last ? 0 : panels_;
    return end;
  }

  /// Where the file has row `row` of the image, both counted from the start of some head.
  static std::uint64_t stored_row(std::uint64_t row, std::int64_t interleaved) {
    const auto head = static_cast<std::uint64_t>(interleaved);
    if (head == 0) {
      return row;
    }
    const std::uint64_t within = row % head;
    const bool first_half = within < head / 2;
    return row - within + (first_half ? 2 * within : 2 * (within - head / 2) + 1);
  }

  /// Makes a row of an image tensor of the stored row. Keeps the scale of an int8 one for the
  /// tensor behind.
  void make_row(StoredType type,
                const std::byte* stored,
                const ImageSource& source,
                const ImageTensor& tensor,
                std::byte* target) {
    const auto columns = static_cast<std::size_t>(tensor.columns);
    const auto stored_columns = static_cast<std::size_t>(source.stored_columns);
    const auto first = static_cast<std::size_t>(source.first_column);
    if (spec::is_blocks(tensor.dtype)) {
      std::memcpy(target,
                  stored + stored_bytes(type, first),
                  static_cast<std::size_t>(spec::row_bytes(tensor.dtype, tensor.columns)));
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

  [[nodiscard]] Result<void> await(const TensorSet::Entry& entry,
                                   std::uint64_t offset,
                                   std::uint64_t bytes) const {
    return options_.await ? options_.await(entry.file, offset, bytes) : Result<void>();
  }

  static Error cancelled(const File& file) {
    return {Code::kCancelled, fmt::format("loading {} was cancelled", file.path().string())};
  }

  /// Copies bytes to where the image has them from `begin` on.
  void write(std::uint64_t begin, std::span<const std::byte> bytes) {
    PieceWalker walker(target_, begin, begin + bytes.size());
    for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
      std::memcpy(piece.data(), bytes.data(), piece.size());
      bytes = bytes.subspan(piece.size());
    }
  }

  Result<void> read_in_place(const File& file,
                             std::uint64_t from,
                             std::uint64_t begin,
                             std::uint64_t end) {
    pieces_.clear();
    PieceWalker walker(target_, begin, end);
    for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
      pieces_.push_back({.iov_base = piece.data(), .iov_len = piece.size()});
    }
    return file.read(from, pieces_);
  }

  Result<void> read_converting(const File& file,
                               std::uint64_t from,
                               const TensorSet::Entry& entry,
                               const ImageTensor& tensor,
                               std::uint64_t begin,
                               std::uint64_t end) {
    const std::uint64_t image_bytes = spec::dtype_bytes(tensor.dtype);
    const std::uint64_t stored_bytes = stored_type_bits(entry.tensor.type) / 8;
    bounce_.resize((end - begin) / image_bytes * stored_bytes);
    if (Result<void> status = file.read(from, bounce_); !status) {
      return status;
    }
    const std::byte* source = bounce_.data();
    PieceWalker walker(target_, begin, end);
    for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
      const std::size_t elements = piece.size() / image_bytes;
      convert(entry.tensor.type, source, tensor.dtype, piece.data(), elements);
      source += elements * stored_bytes;
    }
    return {};
  }

  /// Zeroes from what is written to `end`.
  void fill_zero(std::uint64_t end) {
    PieceWalker walker(target_, written_, end);
    for (std::span<std::byte> piece = walker.next(); !piece.empty(); piece = walker.next()) {
      std::memset(piece.data(), 0, piece.size());
    }
    written_ = end;
  }

  /// Everything before `end` is in place. Says so where it ends a stage, or is far from what was
  /// said last.
  void advance(std::uint64_t end) {
    written_ = end;
    const std::uint64_t before = reported_;
    while (stage_ < layout_.stage_end.size() && layout_.stage_end[stage_] <= end) {
      reported_ = layout_.stage_end[stage_++];
    }
    if (reported_ == before && end - reported_ >= kReportBytes) {
      reported_ = end;
    }
    if (reported_ != before && options_.progress) {
      options_.progress(reported_);
    }
  }

  const TensorSet& tensors_;
  const ImageLayout& layout_;
  ImagePages target_;
  const LoadOptions& options_;
  Pacer pacer_;
  std::uint64_t read_bytes_;  ///< Of one read, on the larger side of the conversion.
  std::vector<std::byte> bounce_{};
  const PackedMatrix* packed_ = nullptr;  ///< What the next is of.
  std::optional<PackedRows> packed_rows_{};
  std::vector<iovec> pieces_{};
  std::vector<float> floats_{};          ///< A row that is being quantised.
  std::vector<std::byte> rows_{};        ///< Rows as the image has them.
  std::vector<std::byte> panel_rows_{};  ///< As the file has them, of which there is no panel yet.
  std::vector<std::byte> panel_{};
  std::uint64_t panels_ = 0;     ///< Written of the tensor that is being loaded.
  std::vector<float> scales_{};  ///< Of the tensor that was quantised last.
  std::uint64_t written_ = 0;    ///< Image bytes written, without gap.
  std::uint64_t reported_ = 0;
  std::size_t stage_ = 0;  ///< The next one whose end has not been reported.
};

}  // namespace

Result<void> load_image(const TensorSet& tensors,
                        const ImageLayout& layout,
                        ImagePages target,
                        const LoadOptions& options) {
  HEDDLE_CHECK(target.page_bytes > 0 && target.page_bytes % 64 == 0);
  HEDDLE_CHECK(target.pages.size() >= pages_for(layout.bytes, target.page_bytes));
  return Loader(tensors, layout, target, options).run();
}

}  // namespace heddle::store
