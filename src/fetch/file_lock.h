#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>

#include "base/descriptor.h"
#include "base/result.h"

namespace heddle::fetch {

/// Holds a lock that processes share by a file (flock), until it ends or its process does. Hugging
/// Face's tools lock their files the same way.
class FileLock {
 public:
  /// Waits until nobody else has it. `on_wait` is called once where that takes a moment. Folders of
  /// the path are made. kCancelled after a stop; kFailedPrecondition where the file cannot be made.
  [[nodiscard]] static Result<FileLock> wait(const std::filesystem::path& path,
                                             const std::function<void()>& on_wait,
                                             const std::stop_token& stop);
  /// kUnavailable where another has it.
  [[nodiscard]] static Result<FileLock> now(const std::filesystem::path& path);
  /// Shares it with others that share it. kUnavailable where one has it alone.
  [[nodiscard]] static Result<FileLock> shared(const std::filesystem::path& path);

 private:
  [[nodiscard]] static Result<FileLock> lock_now(const std::filesystem::path& path, int how);
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;
};

}  // namespace heddle::fetch
