#include "device/cuda/cuda_stream.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "cuda_emulator/probe_kernels.h"
#include "device/cuda/cuda_device.h"

namespace heddle::device {
namespace {

using emulator::AddParams;
using emulator::EmulatedDriver;
using emulator::FillParams;
using emulator::SharedParams;
using ::testing::HasSubstr;

const KernelId kFill{&emulator::probe_image(), "heddle_probe_fill"};
const KernelId kAdd{&emulator::probe_image(), "heddle_probe_add"};
const KernelId kShared{&emulator::probe_image(), "heddle_probe_shared"};
constexpr std::int64_t kCount = 1000;
constexpr LaunchShape kShape{.grid = {4}, .block = {256}};

class CudaStreamTest : public testing::Test {
 protected:
  explicit CudaStreamTest(const std::string& machine = "memory=64MiB") : driver_(machine) {}
  ~CudaStreamTest() override {
    other_.reset();
    stream_.reset();
    device_.reset();
    EXPECT_EQ(driver_.alive(), "");
  }

  static std::unique_ptr<CudaStream> stream_of(CudaDevice& device) {
    return CudaStream::create(device, 0).value();
  }
  static std::int32_t* numbers(const Buffer& buffer) {
    return reinterpret_cast<std::int32_t*>(buffer.data());
  }
  Buffer make(Place place) { return device_->allocate(place, kCount * 4).value(); }
  void fill(CudaStream& stream, const Buffer& buffer, std::int32_t value) {
    stream.launch(
        kFill, kShape, FillParams{.out = numbers(buffer), .count = kCount, .value = value});
  }
  void add(CudaStream& stream, const Buffer& to, const Buffer& from) {
    stream.launch(
        kAdd, kShape, AddParams{.out = numbers(to), .in = numbers(from), .count = kCount});
  }

  emulator::EmulatedDriver driver_;
  std::unique_ptr<CudaDevice> device_ =
      CudaDevice::create({.bytes = 8U << 20U, .driver = emulator::EmulatedDriver::open().value()})
          .value();
  std::unique_ptr<CudaStream> stream_ = stream_of(*device_);
  std::unique_ptr<CudaStream> other_ = stream_of(*device_);
};

TEST_F(CudaStreamTest, KernelsRunInOrderAndNotBeforeSomebodyWaits) {
  const Buffer a = make(Place::kDevice);
  const Buffer b = make(Place::kDevice);
  const Buffer out = make(Place::kHost);
  fill(*stream_, a, 3);
  fill(*stream_, b, 4);
  add(*stream_, a, b);
  add(*stream_, a, b);
  stream_->copy(out.data(), a.data(), out.bytes());
  EXPECT_EQ(numbers(out)[7], 0) << "nothing ran yet";
  ASSERT_TRUE(stream_->synchronize());
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(numbers(out)[i], 11);
  }
}

struct Counted {
  int count = 0;
};
struct OtherCounted {
  int count = 0;
};

TEST_F(CudaStreamTest, KeepsOneOfEachTypeForOperations) {
  stream_->attachment<Counted>().count = 3;
  EXPECT_EQ(stream_->attachment<OtherCounted>().count, 0);
  EXPECT_EQ(stream_->attachment<Counted>().count, 3);
  EXPECT_EQ(other_->attachment<Counted>().count, 0);
}

TEST_F(CudaStreamTest, AStreamSeesAnothersWorkOnlyWhenItWaitedForIt) {
  const Buffer a = make(Place::kDevice);
  const Buffer out = make(Place::kHost);
  fill(*other_, a, 5);
  stream_->copy(out.data(), a.data(), out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(out)[0], 0) << "a missing wait shows";
  stream_->wait_for(*other_);
  fill(*other_, a, 6);
  stream_->copy(out.data(), a.data(), out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(out)[0], 5) << "what came later was not waited for";
  ASSERT_TRUE(other_->synchronize());
}

TEST_F(CudaStreamTest, WaitsForAMarkAndNotForWhatCameAfterIt) {
  const Buffer a = make(Place::kDevice);
  const Buffer first = make(Place::kHost);
  const Buffer second = make(Place::kHost);
  fill(*stream_, a, 5);
  stream_->copy(first.data(), a.data(), first.bytes());
  const std::uint64_t before = stream_->mark();
  fill(*stream_, a, 6);
  stream_->copy(second.data(), a.data(), second.bytes());
  const std::uint64_t after = stream_->mark();
  ASSERT_TRUE(stream_->wait(before));
  EXPECT_EQ(numbers(first)[0], 5);
  EXPECT_EQ(numbers(second)[0], 0) << "it need not have run";
  (void)stream_->mark();  // The third; of the first only the second is known any more.
  ASSERT_TRUE(stream_->wait(after));
  EXPECT_EQ(numbers(second)[0], 6);
}

TEST_F(CudaStreamTest, AFailureAfterAMarkIsReportedWhenTheMarkIsWaitedFor) {
  const Buffer a = make(Place::kDevice);
  fill(*stream_, a, 5);
  const std::uint64_t mark = stream_->mark();
  driver_.fail("cuLaunchKernelEx", 1, kCudaInvalidValue);
  fill(*stream_, a, 6);
  const Result<void> waited = stream_->wait(mark);
  ASSERT_FALSE(waited);
  EXPECT_THAT(waited.error().message, HasSubstr("cuLaunchKernelEx"));
  EXPECT_TRUE(stream_->synchronize());
}

TEST_F(CudaStreamTest, OrdinaryMemoryIsCopiedAtOnce) {
  const Buffer a = make(Place::kDevice);
  std::vector<std::int32_t> in(kCount, 9);
  std::vector<std::int32_t> out(kCount, 0);
  stream_->copy(a.data(), reinterpret_cast<const std::byte*>(in.data()), a.bytes());
  in.assign(kCount, 0);
  stream_->copy(reinterpret_cast<std::byte*>(out.data()), a.data(), a.bytes());
  EXPECT_EQ(out[kCount - 1], 9);
  ASSERT_TRUE(stream_->synchronize());
}

TEST_F(CudaStreamTest, LargeSharedMemoryIsAskedFor) {
  const Buffer out = make(Place::kHost);
  for (const std::uint32_t bytes : {40U << 10U, 100U << 10U, 60U << 10U, 227U << 10U}) {
    numbers(out)[0] = 0;
    stream_->launch(kShared,
                    {.grid = {1}, .block = {32}, .shared_bytes = bytes},
                    SharedParams{.out = numbers(out), .words = bytes / 4});
    ASSERT_TRUE(stream_->synchronize()) << bytes;
    EXPECT_EQ(numbers(out)[0], 77);
  }
  EXPECT_EQ(driver_.calls("cuFuncSetAttribute"), 2U);
  stream_->launch(kShared,
                  {.grid = {1}, .block = {32}, .shared_bytes = 228U << 10U},
                  SharedParams{.out = numbers(out), .words = 1});
  const auto refused = stream_->synchronize();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("heddle_probe_shared"));
}

TEST_F(CudaStreamTest, AFailureIsKeptAndDropsWhatFollows) {
  const Buffer out = make(Place::kHost);
  fill(*stream_, out, 1);
  stream_->launch(KernelId{kFill.module, "heddle_no_such"}, kShape, FillParams{});
  fill(*stream_, out, 2);
  const auto failed = stream_->synchronize();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(failed.error().message, HasSubstr("heddle_no_such"));
  EXPECT_EQ(numbers(out)[0], 1);
  fill(*stream_, out, 3);
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(out)[0], 3);
}

TEST_F(CudaStreamTest, WhatAnOperationCannotDoIsReported) {
  stream_->fail({.code = Code::kInvalidArgument, .message = "no such shape"});
  stream_->fail({.code = Code::kInvalidArgument, .message = "a second"});
  const auto failed = stream_->synchronize();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no such shape");
  EXPECT_TRUE(stream_->synchronize());
}

TEST_F(CudaStreamTest, ScratchGrowsAndKeepsWhatItWas) {
  std::byte* const small = stream_->scratch(100);
  EXPECT_EQ(stream_->scratch(4096), small);
  std::byte* const large = stream_->scratch(3U << 20U);
  EXPECT_NE(large, small);
  EXPECT_EQ(stream_->scratch(100), large);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 256, 0U);
  EXPECT_EQ(stream_->scratch(std::size_t{1} << 40U), nullptr);
  const auto failed = stream_->synchronize();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
}

TEST_F(CudaStreamTest, RecordedWorkRunsAgainAndAgain) {
  const Buffer a = make(Place::kDevice);
  const Buffer b = make(Place::kHost);
  fill(*stream_, b, 2);
  add(*stream_, a, b);
  ASSERT_TRUE(stream_->synchronize());
  ASSERT_TRUE(stream_->begin_capture());
  add(*stream_, a, b);
  stream_->copy(b.data(), a.data(), b.bytes());
  const auto graph = stream_->end_capture().value();
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(b)[0], 2) << "recording runs nothing";
  for (int i = 0; i < 3; ++i) {
    stream_->replay(*graph);
  }
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(b)[kCount - 1], 16);
}

TEST_F(CudaStreamTest, WhatCannotBeRecordedEndsTheRecording) {
  const Buffer a = make(Place::kDevice);
  std::vector<std::byte> ordinary(a.bytes());
  fill(*stream_, a, 1);
  ASSERT_TRUE(stream_->begin_capture());
  stream_->copy(a.data(), ordinary.data(), a.bytes());
  EXPECT_FALSE(stream_->end_capture());
  ASSERT_TRUE(stream_->begin_capture());
  EXPECT_EQ(stream_->scratch(8U << 20U), nullptr);
  const auto refused = stream_->end_capture();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("scratch"));
  fill(*stream_, a, 2);
  EXPECT_TRUE(stream_->synchronize()) << "the stream is as good as before";
}

constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
constexpr bool kSanitizer = kThreadSanitizer || __has_feature(address_sanitizer);

TEST_F(CudaStreamTest, AnIllegalAddressLosesTheDeviceForGood) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the emulated kernel's fault handler leaves by another stack";
  }
  const AddressRange nothing = device_->reserve(device_->properties().page_bytes).value();
  stream_->launch(
      kFill, kShape, FillParams{.out = reinterpret_cast<std::int32_t*>(nothing.base), .count = 8});
  const auto lost = stream_->synchronize();
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
  EXPECT_THAT(lost.error().message, HasSubstr("GPU 0 (emulated GPU) is lost"));
  EXPECT_THAT(lost.error().message, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  const auto after = other_->synchronize();
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().message, lost.error().message);
  const auto buffer = device_->allocate(Place::kDevice, 8);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, Code::kUnavailable);
  device_->release(nothing);
}

/// Two flags in pinned memory.
struct Flags {
  explicit Flags(CudaDevice& device) : memory(device.allocate(Place::kHost, 128).value()) {}
  [[nodiscard]] Flag& operator[](std::size_t i) const {
    return reinterpret_cast<Flag*>(memory.data())[16 * i];
  }
  Buffer memory;
};

TEST_F(CudaStreamTest, AStreamWaitsForTheFlagThatAnotherRaises) {
  const Buffer a = make(Place::kDevice);
  const Buffer out = make(Place::kHost);
  const Flags flags(*device_);
  // There and back: the second adds to what the first has left.
  fill(*stream_, a, 3);
  stream_->raise_flag(flags[0], 1);
  stream_->await_flag(flags[1], 1);
  stream_->copy(out.data(), a.data(), out.bytes());
  other_->await_flag(flags[0], 1);
  add(*other_, a, a);
  other_->raise_flag(flags[1], 1);
  EXPECT_EQ(flags[0].load(), 0U) << "nothing ran yet";
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(out)[7], 6);
  EXPECT_EQ(flags[1].load(), 1U);
  EXPECT_TRUE(other_->synchronize());
}

TEST_F(CudaStreamTest, AFlagCountsRoundAndMayBeBeyond) {
  const Flags flags(*device_);
  flags[0] = UINT32_MAX;
  stream_->await_flag(flags[0], UINT32_MAX - 5);
  ASSERT_TRUE(stream_->synchronize());
  flags[0] = 3;
  stream_->await_flag(flags[0], UINT32_MAX - 5);
  EXPECT_TRUE(stream_->synchronize());
}

TEST_F(CudaStreamTest, AThreadOfTheHostLetsAStreamGo) {
  const Buffer a = make(Place::kDevice);
  const Buffer out = make(Place::kHost);
  const Flags flags(*device_);
  stream_->await_flag(flags[0], 7);
  fill(*stream_, a, 5);
  stream_->copy(out.data(), a.data(), out.bytes());
  std::jthread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(numbers(out)[7], 0) << "it waits";
    flags[0] = 7;
  });
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(numbers(out)[7], 5);
}

TEST_F(CudaStreamTest, FlagsAreNotRecorded) {
  const Flags flags(*device_);
  ASSERT_TRUE(stream_->begin_capture());
  stream_->raise_flag(flags[0], 1);
  EXPECT_FALSE(stream_->end_capture());
  EXPECT_TRUE(stream_->synchronize());
  EXPECT_EQ(flags[0].load(), 0U);
}

class NoFlagsTest : public CudaStreamTest {
 protected:
  NoFlagsTest() : CudaStreamTest("memory=64MiB,flags=0") {}
};

TEST_F(NoFlagsTest, ADeviceSaysWhetherItHasThem) {
  EXPECT_FALSE(device_->properties().flags);
  const Flags flags(*device_);
  stream_->await_flag(flags[0], 0);
  const auto refused = stream_->synchronize();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
}

class CudaAddressTest : public CudaStreamTest {
 protected:
  CudaAddressTest() : CudaStreamTest("memory=64MiB,addresses=1") {}
};

TEST_F(CudaAddressTest, KernelsCannotTouchOrdinaryMemory) {
  if (kSanitizer) {
    GTEST_SKIP() << "the emulated driver cannot tell it under sanitizers";
  }
  std::vector<std::int32_t> ordinary(kCount);
  stream_->launch(kFill, kShape, FillParams{.out = ordinary.data(), .count = kCount, .value = 1});
  const auto lost = stream_->synchronize();
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(ordinary[0], 0);
}

using CudaStreamDeathTest = CudaStreamTest;

TEST_F(CudaStreamDeathTest, HostCodeCannotTouchADevice) {
  const Buffer a = make(Place::kDevice);
  EXPECT_DEATH((void)*reinterpret_cast<volatile int*>(a.data()), "");
  EXPECT_DEATH((void)*reinterpret_cast<volatile int*>(device_->page_address(PageId(0))), "");
}

TEST(CudaStreamLaunch, KernelsOverlapWhereTheGpuCan) {
  for (const auto& [machine, overlaps, asked] : {std::tuple("capability=90", true, true),
                                                 std::tuple("capability=90", false, false),
                                                 std::tuple("capability=80", false, true)}) {
    SCOPED_TRACE(machine);
    const EmulatedDriver emulated(std::string("memory=64MiB,") + machine);
    const auto device = CudaDevice::create({.bytes = std::uint64_t{4} << 20U,
                                            .overlaps = asked,
                                            .driver = EmulatedDriver::open().value()})
                            .value();
    const auto stream = CudaStream::create(*device, 0).value();
    const Buffer out = device->allocate(Place::kHost, 64).value();
    stream->launch(
        kFill,
        {.grid = {1}, .block = {16}},
        FillParams{.out = reinterpret_cast<std::int32_t*>(out.data()), .count = 16, .value = 3});
    ASSERT_TRUE(stream->synchronize());
    EXPECT_EQ(out.data()[60], std::byte{3});
    EXPECT_EQ(emulated.calls("overlapping launch"), overlaps ? 1U : 0U);
  }
}

TEST(CudaStreamLaunch, TheLogTellsOnceWhichCodeTheDriverTook) {
  for (const auto& [machine, code] : {std::pair("capability=89", "sm_80"),
                                      std::pair("capability=90", "sm_90"),
                                      std::pair("capability=103", "sm_100")}) {
    const EmulatedDriver emulated(std::string("memory=64MiB,") + machine);
    const auto device = CudaDevice::create({.bytes = std::uint64_t{4} << 20U,
                                            .driver = EmulatedDriver::open().value()})
                            .value();
    testing::internal::CaptureStderr();
    ASSERT_TRUE(device->function(kFill, 0));
    ASSERT_TRUE(device->function(kAdd, 0));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(code)) << machine;
    EXPECT_EQ(emulated.calls("cuFuncGetAttribute"), 1U);
  }
}

}  // namespace
}  // namespace heddle::device
