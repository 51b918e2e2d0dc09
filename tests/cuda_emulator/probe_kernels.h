#pragma once

#include <cstdint>

// Parameters of the kernels in probe_kernels.cu, which tests of devices and streams launch.
namespace heddle::emulator {

struct FillParams {
  std::int32_t* out = nullptr;
  std::int64_t count = 0;
  std::int32_t value = 0;
};

struct AddParams {
  std::int32_t* out = nullptr;  ///< out[i] += in[i]
  const std::int32_t* in = nullptr;
  std::int64_t count = 0;
};

struct SharedParams {
  std::int32_t* out = nullptr;  ///< The last word of `words` in dynamic shared memory, once set.
  std::int64_t words = 0;
};

}  // namespace heddle::emulator
