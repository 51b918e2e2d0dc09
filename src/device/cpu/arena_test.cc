#include "device/cpu/arena.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::device {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = std::size_t{64} << 10U;

Arena make_arena(std::uint64_t pages) {
  return Arena::create({.page_bytes = kPage, .page_count = pages}).value();
}

TEST(Arena, IsZeroedSealedAndCloseOnExec) {
  const Arena arena = make_arena(3);
  EXPECT_EQ(arena.page_count(), 3U);
  EXPECT_EQ(arena.bytes(), 3 * kPage);
  EXPECT_NE(arena.backing(), ArenaBacking::kHugetlb) << "64 KiB pages do not fit huge ones";
  for (std::size_t i = 0; i < arena.bytes(); ++i) {
    ASSERT_EQ(arena.base()[i], std::byte{0});
  }
  EXPECT_NE(::ftruncate(arena.fd(), 0), 0) << "shrinking it would make accesses SIGBUS";
  EXPECT_NE(::ftruncate(arena.fd(), static_cast<off_t>(4 * kPage)), 0);
  EXPECT_TRUE((::fcntl(arena.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST(Arena, ReportsProgressToTheEnd) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> calls;
  const std::uint64_t bytes = std::uint64_t{100} << 20U;
  const auto arena = Arena::create({.page_bytes = std::size_t{4} << 20U,
                                    .page_count = 25,
                                    .progress = [&](std::uint64_t done, std::uint64_t total) {
                                      calls.emplace_back(done, total);
                                    }});
  ASSERT_TRUE(arena);
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls.back(), std::pair(bytes, bytes));
  EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end()));
}

TEST(Arena, IsAllocatedWhenMade) {
  const Arena arena = make_arena(64);
  std::vector<unsigned char> resident(arena.bytes() / 4096);
  ASSERT_EQ(::mincore(arena.base(), arena.bytes(), resident.data()), 0);
  for (const unsigned char page : resident) {
    ASSERT_EQ(page & 1U, 1U);
  }
}

TEST(Arena, SaysWhatWouldGiveItHugePages) {
  const Arena small = make_arena(2);
  const Arena large = Arena::create({.page_bytes = std::size_t{4} << 20U, .page_count = 2}).value();
  if (small.backing() == ArenaBacking::kShmem) {
    EXPECT_THAT(small.huge_page_advice(), HasSubstr("(page: 2MiB), not of 64 KiB"));
  } else {
    EXPECT_EQ(small.huge_page_advice(), "");
  }
  if (large.backing() == ArenaBacking::kShmem) {
    EXPECT_THAT(large.huge_page_advice(),
                HasSubstr("write 4 or more to /proc/sys/vm/nr_hugepages"));
  } else {
    EXPECT_EQ(large.huge_page_advice(), "");
  }
}

TEST(Arena, TwoMappingsAreTheSameMemory) {
  const Arena first = make_arena(2);
  auto second = Arena::attach(first.fd(), kPage);
  ASSERT_TRUE(second);
  EXPECT_NE(second->base(), first.base());
  EXPECT_EQ(second->bytes(), first.bytes());
  EXPECT_EQ(second->backing(), first.backing());
  second->base()[kPage + 5] = std::byte{42};
  EXPECT_EQ(first.base()[kPage + 5], std::byte{42});
}

TEST(Arena, MovesAndAttachedMappingsOutliveTheMaker) {
  Arena first = make_arena(2);
  Arena attached = Arena::attach(first.fd(), kPage).value();
  first.base()[0] = std::byte{9};
  Arena moved = std::move(first);
  moved = make_arena(1);
  EXPECT_EQ(moved.page_count(), 1U);
  EXPECT_EQ(attached.base()[0], std::byte{9});
}

TEST(Arena, SaysWhatIsWrongWithASize) {
  const auto odd = Arena::create({.page_bytes = 5000, .page_count = 1});
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Code::kInvalidArgument);
  EXPECT_EQ(odd.error().message, "page of 5000 bytes: must be a power of two, at least 4096");
  EXPECT_FALSE(Arena::create({.page_bytes = 2048, .page_count = 1}));
  EXPECT_FALSE(Arena::create({.page_bytes = kPage, .page_count = 0}));
  EXPECT_FALSE(Arena::create({.page_bytes = kPage, .page_count = UINT64_MAX}));
}

TEST(Arena, MoreThanTheHostHasIsOneErrorWithTheNumbers) {
  const auto refused = Arena::create({.page_bytes = kPage, .page_count = std::uint64_t{1} << 28U});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("make an arena of 16777216 MiB: the "));
  EXPECT_THAT(refused.error().message, HasSubstr(" MiB available; "));
  EXPECT_THAT(refused.error().message, HasSubstr("less memory"));
}

TEST(Arena, AttachRefusesWhatIsNoArena) {
  EXPECT_FALSE(Arena::attach(-1, kPage));
  const int unsealed = ::memfd_create("not-an-arena", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(unsealed, static_cast<off_t>(kPage)), 0);
  const auto refused = Arena::attach(unsealed, kPage);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("not a memory file sealed against resizing"));
  ::close(unsealed);

  const Arena arena = make_arena(3);
  const auto uneven = Arena::attach(arena.fd(), 2 * kPage);
  ASSERT_FALSE(uneven);
  EXPECT_THAT(uneven.error().message, HasSubstr("196608 bytes are not a whole number"));
}

// What a killed worker leaves behind: its writes are there, and the next worker attaches again.
TEST(Arena, OutlivesAKilledProcessAndCanBeAttachedAgain) {
  const Arena arena = make_arena(4);
  for (const int life : {1, 2}) {
    int pipe[2];  // NOLINT(*-avoid-c-arrays): as the call wants it.
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto attached = Arena::attach(arena.fd(), kPage);
      if (!attached || (life > 1 && attached->base()[3 * kPage] != std::byte(life - 1))) {
        ::_exit(1);
      }
      std::memset(attached->base() + 3 * kPage, life, kPage);
      if (::write(pipe[1], "w", 1) != 1) {
        ::_exit(1);
      }
      for (;;) {
        ::pause();
      }
    }
    ::close(pipe[1]);
    char written = 0;
    ASSERT_EQ(::read(pipe[0], &written, 1), 1) << "the child could not attach";
    ::close(pipe[0]);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(arena.base()[3 * kPage], std::byte(life));
    EXPECT_EQ(arena.base()[4 * kPage - 1], std::byte(life));
    EXPECT_EQ(arena.base()[3 * kPage - 1], std::byte{0});
  }
}

std::int64_t backed_bytes(const Arena& arena) {
  struct stat status{};
  EXPECT_EQ(::fstat(arena.fd(), &status), 0);
  return status.st_blocks * 512;
}

TEST(Arena, AReleasedPageIsTheKernelsUntilItIsRestored) {
  const std::size_t page = std::size_t{64} << 10U;
  auto arena = Arena::create({.page_bytes = page, .page_count = 8});
  ASSERT_TRUE(arena);
  std::memset(arena->base(), 7, arena->bytes());
  const std::int64_t all = backed_bytes(*arena);
  ASSERT_TRUE(arena->release(3));
  ASSERT_TRUE(arena->release(4));
  EXPECT_EQ(backed_bytes(*arena), all - 2 * static_cast<std::int64_t>(page));
  ASSERT_TRUE(arena->restore(3));
  EXPECT_EQ(backed_bytes(*arena), all - static_cast<std::int64_t>(page));
  EXPECT_EQ(arena->base()[3 * page], std::byte{0});
  EXPECT_EQ(arena->base()[3 * page - 1], std::byte{7});
  EXPECT_EQ(arena->base()[5 * page], std::byte{7});
}

TEST(Arena, UsesHugePagesWhereTheHostKeepsThem) {
  constexpr std::size_t kHuge = std::size_t{2} << 20U;
  const auto arena = Arena::create({.page_bytes = kHuge, .page_count = 4});
  ASSERT_TRUE(arena) << "with or without huge pages, an arena can be had";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->base()) % kHuge, 0U);
  const auto attached = Arena::attach(arena->fd(), kHuge);
  ASSERT_TRUE(attached);
  EXPECT_EQ(attached->backing(), arena->backing());
  if (arena->backing() != ArenaBacking::kHugetlb) {
    GTEST_SKIP() << "no free 2 MiB pages (vm.nr_hugepages) on this host";
  }
}

}  // namespace
}  // namespace heddle::device
