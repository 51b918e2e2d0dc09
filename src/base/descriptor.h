#pragma once

#include <utility>

#include <unistd.h>

namespace heddle {

/// Owns one file descriptor of this process, or none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      (void)::close(fd_);  // Nothing can be done about a failure, and the number is gone anyway.
    }
  }

  /// The number; -1 when there is none.
  [[nodiscard]] int get() const { return fd_; }
  /// Gives the descriptor up to the caller.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace heddle
