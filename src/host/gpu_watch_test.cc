#include "host/gpu_watch.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/test_places.h"

#include <unistd.h>

namespace heddle::host {
namespace {

constexpr const char* kFirst = "GPU-e0000000-0000-0000-0000-000000000000";
constexpr const char* kSecond = "GPU-e0000000-0000-0000-0000-000000000001";
constexpr DeviceId kCpu{0};
constexpr DeviceId kGpu0{1};
constexpr DeviceId kGpu1{2};

/// Two emulated GPUs, which are the devices behind one of the host's.
class GpuWatchTest : public testing::Test {
 protected:
  GpuWatchTest() {
    ::setenv("HEDDLE_CUDA_DRIVER", places::kCudaEmulator, 1);
    ::setenv("HEDDLE_CUDA_EMULATOR", "devices=2", 1);
    ::setenv("HEDDLE_NVML", places::kNvmlEmulator, 1);
    ::setenv("HEDDLE_NVML_EMULATOR", file_.c_str(), 1);
  }
  ~GpuWatchTest() override {
    for (const char* const name :
         {"HEDDLE_CUDA_DRIVER", "HEDDLE_CUDA_EMULATOR", "HEDDLE_NVML", "HEDDLE_NVML_EMULATOR"}) {
      ::unsetenv(name);
    }
    ::unlink(file_.c_str());
  }
  static std::uint64_t wait_known(const GpuWatch& watch, DeviceId device, bool running) {
    std::optional<std::uint64_t> bytes;
    while (!bytes) {
      std::this_thread::yield();
      bytes = watch.others_bytes(device, running);
    }
    return *bytes;
  }

  std::string file_ = testing::TempDir() + "gpu_watch." + std::to_string(::getpid());
  std::map<DeviceId, int> gpus_{{kGpu0, 0}, {kGpu1, 1}};
};

TEST_F(GpuWatchTest, OthersAreToldFromOurOwn) {
  // In another order than the driver's.
  std::ofstream(file_) << kSecond << " 1000 900 999999999:300\n"
                       << kFirst << " 1000 900 " << ::getpid() << ":800 999999999:50\n";
  const GpuWatch watch(gpus_);
  EXPECT_EQ(wait_known(watch, kGpu0, true), 50U);
  EXPECT_EQ(wait_known(watch, kGpu1, false), 300U);
  EXPECT_EQ(watch.others_bytes(kGpu1, true), std::nullopt)
      << "a worker runs there and is not among them: who is whose is not known";
  EXPECT_EQ(watch.others_bytes(kCpu, false), std::nullopt);
}

TEST_F(GpuWatchTest, WithoutALibraryNothingIsKnown) {
  ::setenv("HEDDLE_NVML", "/nonexistent", 1);
  const GpuWatch watch(gpus_);
  EXPECT_EQ(watch.others_bytes(kGpu0, false), std::nullopt);
}

TEST_F(GpuWatchTest, WithoutGpusNothingIsDone) {
  gpus_.clear();
  const GpuWatch watch(gpus_);
  EXPECT_EQ(watch.others_bytes(kCpu, false), std::nullopt);
}

}  // namespace
}  // namespace heddle::host
