#include "ops/cuda/blas_places.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_places.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/blas.h"

#include <unistd.h>

namespace heddle::ops::cuda {
namespace {

namespace fs = std::filesystem;

/// A folder in which libraries are only names.
class BlasPlacesTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(root_); }

  fs::path put(const fs::path& name) {
    const fs::path file = root_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "a library";
    return file;
  }

  fs::path root_ = fs::path(testing::TempDir()) / ("blas_places." + std::to_string(::getpid()));
};

TEST_F(BlasPlacesTest, FindsWhatPipInstalledNewestFirst) {
  const auto old = put("venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12");
  const auto late = put("usr/lib/python3.12/dist-packages/nvidia/cu13/lib/libcublasLt.so.13");
  const auto own = put("packages/nvidia/cu12/lib/libcublasLt.so.12");
  put("venv/lib/python3.11/site-packages/nvidia/cufft/lib/libcufft.so.12");
  const PythonPlaces places{.prefixes = {root_ / "venv", root_ / "nothing", root_ / "usr"},
                            .packages = {root_ / "packages"}};
  EXPECT_EQ(blas_in_python(places),
            (std::vector<std::string>{late.string(), own.string(), old.string()}));
  EXPECT_EQ(blas_in_python({}), std::vector<std::string>{});
}

TEST_F(BlasPlacesTest, TheLibraryIsTakenFromAVirtualEnvironment) {
  const fs::path file =
      root_ / "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13";
  fs::create_directories(file.parent_path());
  fs::create_symlink(places::kCublasltEmulator, file);
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread.
  const char* named = std::getenv("HEDDLE_CUBLASLT");
  const std::string before = named == nullptr ? "" : named;
  const char* driver = std::getenv("HEDDLE_CUDA_DRIVER");
  if (driver != nullptr) {
    GTEST_SKIP() << "only the emulated library is put anywhere";
  }
  ::unsetenv("HEDDLE_CUBLASLT");
  ::setenv("VIRTUAL_ENV", (root_ / "venv").c_str(), 1);
  const auto library = BlasLibrary::open();
  ::unsetenv("VIRTUAL_ENV");
  if (named != nullptr) {
    ::setenv("HEDDLE_CUBLASLT", before.c_str(), 1);
  }
  // NOLINTEND(concurrency-mt-unsafe)
  ASSERT_TRUE(library) << library.error().message;
  if ((*library)->name().find("libcublasLt.so") == 0) {
    GTEST_SKIP() << "this machine has one of its own";
  }
  EXPECT_EQ((*library)->name(), file.string());
}

}  // namespace
}  // namespace heddle::ops::cuda
