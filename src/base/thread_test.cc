#include "base/thread.h"

#include <array>
#include <cerrno>
#include <exception>
#include <string>
#include <system_error>

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Thread, RunsUnderItsNameAndIsJoined) {
  std::string name;
  {
    auto thread = Thread::start({.name = "weaver"}, [&name] {
      std::array<char, 16> bytes{};
      (void)::pthread_getname_np(::pthread_self(), bytes.data(), bytes.size());
      name = bytes.data();
    });
    ASSERT_TRUE(thread) << thread.error().message;
  }
  EXPECT_EQ(name, "weaver");
}

TEST(Thread, HasTheStackThatItAskedFor) {
  std::size_t bytes = 0;
  auto thread = Thread::start({.name = "deep", .stack_bytes = std::size_t{48} << 20U}, [&bytes] {
    pthread_attr_t attributes;
    ASSERT_EQ(::pthread_getattr_np(::pthread_self(), &attributes), 0);
    (void)::pthread_attr_getstacksize(&attributes, &bytes);
    (void)::pthread_attr_destroy(&attributes);
  });
  ASSERT_TRUE(thread) << thread.error().message;
  thread->join();
  EXPECT_GE(bytes, std::size_t{48} << 20U);
}

TEST(Thread, FailsWithAnErrorWhereItCannotBeStarted) {
  // No machine has so much room for a stack.
  const auto thread =
      Thread::start({.name = "too deep", .stack_bytes = std::size_t{1} << 60U}, [] {});
  ASSERT_FALSE(thread);
  EXPECT_EQ(thread.error().code, Code::kUnavailable);
  EXPECT_NE(thread.error().message.find("start the thread \"too deep\""), std::string::npos);
}

TEST(Thread, SoManyCanBeHadAtOnce) {
  const Result<void> tried = try_threads(20);
  EXPECT_TRUE(tried) << tried.error().message;
}

TEST(Thread, WhatLibrariesThrowIsAnError) {
  const Result<void> failed = with_threads("the pool", []() -> Result<void> {
    std::rethrow_exception(
        std::make_exception_ptr(std::system_error(EAGAIN, std::generic_category(), "thread")));
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kUnavailable);
  EXPECT_EQ(failed.error().message.find("start the pool: thread: Resource temporarily"), 0U)
      << failed.error().message;
  EXPECT_TRUE(with_threads("the pool", [] { return Result<void>(); }));
}

}  // namespace
}  // namespace heddle
