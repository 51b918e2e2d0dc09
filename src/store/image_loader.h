#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "base/result.h"
#include "store/image_layout.h"
#include "store/slice_loader.h"
#include "store/tensor_set.h"

namespace heddle::store {

/// Pages that an image of `bytes` takes.
[[nodiscard]] constexpr std::uint64_t pages_for(std::uint64_t bytes, std::size_t page_bytes) {
  return (bytes + page_bytes - 1) / page_bytes;
}

struct LoadOptions {
  /// Called in one thread at a time, not always the same, with the number of bytes, from the start
  /// of the image, that are in place for good: never fewer than before, at the end of every stage
  /// (`ImageLayout::stage_end`) and at least every 8 MiB.
  std::function<void(std::uint64_t bytes)> progress{};
  /// Asking to stop ends the load with kCancelled, within one read of a few MiB.
  std::stop_token stop{};
  /// Called in this thread before so many bytes of one of the files (by its place in
  /// TensorSet::files()) are read: returns when they are there, or ends the load with its error.
  /// May be empty; otherwise this thread does all.
  SliceLoader::Await await{};
  /// No more image bytes per second than this; 0 for as fast as the disk goes.
  std::uint64_t bytes_per_second = 0;
};

/// Fills `target` with the image of `layout` in order, so that the first stages can be used while
/// the later ones are being read. The caller's thread and up to three more take a slice at a time
/// (image_slices.h): one waits for the disk while another copies, converts or rounds. Where the
/// stored type is the image's, bytes go from the file to their place without a stop; otherwise
/// through a bounce buffer, where they are converted (of blocks, decoded, or laid in panels where
/// the image has them too) or, to int8, quantised row by row (quantise.h): of a shard each row by
/// what the shard has of it. Where a shard has some columns of a tensor, all of them are read. Gaps
/// between tensors and the rest of the last page become zero; nothing outside the pages and none of
/// the pages behind the image's last is written. Blocks.
///
/// @param tensors  Passed check_tensors for the model of `layout`, or the one it is a shard of.
/// @param target   At least pages_for(layout.bytes) pages. After an error what is in place
///                 beyond the last progress is undefined, and nobody writes there any more.
/// @return         kCorrupt if a file is shorter than it was, kFailedPrecondition if it has other
///                 blocks than the layout, kUnavailable if it cannot be read, kCancelled.
[[nodiscard]] Result<void> load_image(const TensorSet& tensors,
                                      const ImageLayout& layout,
                                      ImagePages target,
                                      const LoadOptions& options = {});

}  // namespace heddle::store
