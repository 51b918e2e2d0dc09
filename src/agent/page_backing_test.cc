#include "agent/page_backing.h"

#include <future>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::agent {
namespace {

TEST(PageBacking, WhatWasReleasedIsBackedAgainAndAllZero) {
  constexpr std::size_t kBytes = 65536;
  device::Arena arena = device::Arena::create({.page_bytes = kBytes, .page_count = 4}).value();
  arena.base()[kBytes] = std::byte{7};
  const std::vector<PageId> pages{PageId(1), PageId(2)};
  PageBacking backing(arena);
  backing.release(pages);
  std::promise<void> done;
  backing.restore(pages, [&done] { done.set_value(); });
  done.get_future().wait();
  EXPECT_EQ(arena.base()[kBytes], std::byte{});
}

}  // namespace
}  // namespace heddle::agent
