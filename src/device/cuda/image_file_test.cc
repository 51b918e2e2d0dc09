#include "device/cuda/image_file.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "cuda_emulator/emulated_driver.h"
#include "cuda_emulator/probe_kernels.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"

namespace heddle::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kImagePage = std::size_t{2} << 20U;
constexpr const char* kProbePart = "probe_kernels";

/// A fat binary of nothing, of which so many bytes follow the header.
std::string fat_binary(std::uint64_t says, std::size_t has) {
  std::string bytes(16 + has, '\0');
  const std::uint32_t magic = 0xBA55ED50;
  const std::uint16_t header = 16;
  std::memcpy(bytes.data(), &magic, sizeof(magic));
  std::memcpy(bytes.data() + 6, &header, sizeof(header));
  std::memcpy(bytes.data() + 8, &says, sizeof(says));
  return bytes;
}

class ImageFileTest : public testing::Test {
 protected:
  ImageFileTest() { ::setenv("HEDDLE_CUDA_IMAGES", folder_.path().c_str(), 1); }  // NOLINT
  ~ImageFileTest() override { ::unsetenv("HEDDLE_CUDA_IMAGES"); }                 // NOLINT

  [[nodiscard]] std::string path() const { return image_file(folder_.path().string(), kProbePart); }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  /// Launches a kernel of that part on the emulated driver, which has its kernels itself.
  [[nodiscard]] Result<void> launch() const {
    const auto device = CudaDevice::create({.bytes = 4 * kImagePage,
                                            .driver = emulator::EmulatedDriver::open().value()})
                            .value();
    const auto stream = CudaStream::create(*device, 0).value();
    auto* const out = reinterpret_cast<std::int32_t*>(device->page_address(PageId{0}));
    stream->launch({.module = &emulator::probe_image(), .name = "heddle_probe_fill"},
                   {.grid = {1}, .block = {32}},
                   emulator::FillParams{.out = out, .count = 32, .value = 7});
    return stream->synchronize();
  }

  emulator::EmulatedDriver driver_{"memory=64MiB"};
  TempDirectory folder_{};
};

TEST_F(ImageFileTest, KernelsComeFromTheFolderThatIsNamed) {
  write(fat_binary(4, 4));
  EXPECT_TRUE(launch().has_value());
}

TEST_F(ImageFileTest, AMissingFileIsNamedWithTheKernelThatWantedIt) {
  const auto launched = launch();
  ASSERT_FALSE(launched.has_value());
  EXPECT_THAT(launched.error().message, AllOf(HasSubstr(path()), HasSubstr("heddle_probe_fill")));
}

TEST_F(ImageFileTest, WhatIsNoFatBinaryIsNamed) {
  for (const std::string& wrong : {std::string(),
                                   std::string("\x7f"
                                               "ELF"),
                                   std::string(64, 'x')}) {
    write(wrong);
    const auto launched = launch();
    ASSERT_FALSE(launched.has_value());
    EXPECT_THAT(
        launched.error().message,
        AllOf(HasSubstr(path()), HasSubstr("heddle_probe_fill"), HasSubstr("nvcc -fatbin")));
  }
}

TEST_F(ImageFileTest, AFileThatIsCutShortIsRefused) {
  write(fat_binary(100, 99));
  const auto read = read_image(path());
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_THAT(read.error().message, HasSubstr("cut short: 100 bytes are to follow its header"));
  write(fat_binary(100, 100));
  EXPECT_TRUE(read_image(path()).has_value());
}

TEST_F(ImageFileTest, WithoutAFolderKernelsAreTheProgramsOwn) {
  ::unsetenv("HEDDLE_CUDA_IMAGES");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_FALSE(image_folder().has_value());
  EXPECT_TRUE(launch().has_value());
  ::setenv("HEDDLE_CUDA_IMAGES", "", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_FALSE(image_folder().has_value());
}

}  // namespace
}  // namespace heddle::device
