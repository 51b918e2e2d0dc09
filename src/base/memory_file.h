#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/result.h"

namespace heddle {

/// Memory that processes share: a memfd of one size for ever, mapped for reading and writing.
/// Unmaps and closes at its end.
class MemoryFile {
 public:
  /// Makes `bytes` of zeros, all allocated, so that lack of memory is an error now and no SIGBUS
  /// later. `name` is what the system shows. kResourceExhausted where the host has too little.
  static Result<MemoryFile> create(const std::string& name, std::size_t bytes);
  /// Maps what another process made and passed; duplicates `fd`. kInvalidArgument unless it is a
  /// memory file that keeps its size and has at least `least` bytes.
  static Result<MemoryFile> attach(int fd, std::size_t least);

  MemoryFile(MemoryFile&& other) noexcept
      : descriptor_(std::move(other.descriptor_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_) {}
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();

  /// To be passed to other processes; stays this object's.
  [[nodiscard]] int fd() const { return descriptor_.get(); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  MemoryFile(Descriptor descriptor, std::byte* data, std::size_t bytes)
      : descriptor_(std::move(descriptor)), data_(data), bytes_(bytes) {}
  static Result<MemoryFile> map(Descriptor descriptor, std::size_t bytes);

  Descriptor descriptor_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace heddle
