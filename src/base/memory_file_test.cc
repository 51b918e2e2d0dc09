#include "base/memory_file.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle {
namespace {

TEST(MemoryFile, IsTheSameMemoryWhereverItIsAttached) {
  const MemoryFile made = MemoryFile::create("test", 5000).value();
  const MemoryFile attached = MemoryFile::attach(made.fd(), 100).value();
  EXPECT_EQ(attached.bytes(), 5000U);
  EXPECT_NE(attached.data(), made.data());
  EXPECT_NE(attached.fd(), made.fd());
  EXPECT_TRUE(
      std::all_of(made.data(), made.data() + 5000, [](std::byte b) { return b == std::byte{}; }));
  made.data()[4999] = std::byte{7};
  EXPECT_EQ(attached.data()[4999], std::byte{7});
}

TEST(MemoryFile, OutlivesWhoMadeIt) {
  auto made = MemoryFile::create("test", 100);
  const MemoryFile moved = std::move(*made);
  const MemoryFile attached = [&] {
    const MemoryFile first = MemoryFile::attach(moved.fd(), 100).value();
    return MemoryFile::attach(first.fd(), 100).value();
  }();
  moved.data()[3] = std::byte{9};
  EXPECT_EQ(attached.data()[3], std::byte{9});
}

TEST(MemoryFile, KeepsItsSize) {
  const MemoryFile made = MemoryFile::create("test", 4096).value();
  EXPECT_NE(::ftruncate(made.fd(), 1), 0);
  EXPECT_NE(::ftruncate(made.fd(), 8192), 0);
}

TEST(MemoryFile, AttachesNothingElse) {
  EXPECT_EQ(MemoryFile::attach(-1, 1).error().code, Code::kInvalidArgument);
  const Descriptor open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 4096), 0);
  EXPECT_EQ(MemoryFile::attach(open.get(), 1).error().code, Code::kInvalidArgument)
      << "it may shrink";
  const MemoryFile made = MemoryFile::create("test", 4096).value();
  EXPECT_TRUE(MemoryFile::attach(made.fd(), 4096));
  EXPECT_EQ(MemoryFile::attach(made.fd(), 4097).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace heddle
