#pragma once

#include <string>
#include <string_view>

// Where the tests find what is not compiled into them. The build says so in one source of its own
// (cmake/heddle_test_places.cmake), so that the objects of all others are the same in every
// checkout.
namespace heddle::places {

/// The root of the checkout, without a slash at its end.
extern const char* const kSources;
/// The emulated CUDA driver, the emulated libraries beside it, and a driver that is too old.
extern const char* const kCudaEmulator;
extern const char* const kNvmlEmulator;
extern const char* const kCublasltEmulator;
extern const char* const kOldCudaDriver;

/// The file or folder at `path`, which is relative to the root of the checkout.
[[nodiscard]] inline std::string source(std::string_view path) {
  return std::string(kSources).append("/").append(path);
}

}  // namespace heddle::places
