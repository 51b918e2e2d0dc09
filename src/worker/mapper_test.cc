#include "worker/mapper.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cpu/arena.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"

namespace heddle::worker {
namespace {

constexpr std::size_t kPage = std::size_t{16} << 10U;
constexpr std::size_t kGpuPage = std::size_t{64} << 10U;
constexpr ModelId kModel{3};

/// What a mapper said, to be waited for.
class Heard {
 public:
  Mapper::Handlers handlers() {
    return {.on_opened =
                [this](ModelId /*model*/, Result<void> opened) {
                  note([&] { opened_.push_back(opened.has_value()); });
                },
            .on_copied =
                [this](ModelId /*model*/, std::uint64_t bytes) {
                  note([&] {
                    copied_ = bytes;
                    images_ += bytes == 4 * kPage ? 1 : 0;
                  });
                },
            .on_closed = [this](ModelId /*model*/) { note([&] { ++closed_; }); },
            .on_lost = [](const Error& error) { ADD_FAILURE() << error.message; }};
  }
  void wait_opened(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return opened_.size() >= count; });
  }
  void wait_closed(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ >= count; });
  }
  void wait_copied(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return copied_ >= bytes; });
  }
  /// Until so many images of four pages were copied to their end.
  void wait_all_copied(int images) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return images_ >= images; });
  }
  [[nodiscard]] std::uint64_t copied() {
    const std::lock_guard lock(mutex_);
    return copied_;
  }
  [[nodiscard]] bool all_opened() {
    const std::lock_guard lock(mutex_);
    return std::find(opened_.begin(), opened_.end(), false) == opened_.end();
  }

 private:
  template <class What>
  void note(const What& what) {
    {
      const std::lock_guard lock(mutex_);
      what();
    }
    changed_.notify_all();
  }

  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<bool> opened_{};
  std::uint64_t copied_ = 0;
  int images_ = 0;
  int closed_ = 0;
};

class MapperTest : public testing::Test {
 protected:
  static std::vector<PageId> pages(std::uint64_t first, std::uint64_t count) {
    std::vector<PageId> made;
    for (std::uint64_t i = 0; i < count; ++i) {
      made.emplace_back(first + i);
    }
    return made;
  }
  /// Four pages of the host, all there, to those from `first` on.
  static Mapper::Open copy_to(ModelId model, memory::Window& window, std::uint64_t first) {
    return {.model = model,
            .window = &window,
            .pages = pages(first, 4),
            .source = pages(0, 4),
            .image_bytes = 4 * kPage,
            .ready_bytes = 4 * kPage};
  }
  static void wait_until_nothing_is_kept(const Mapper& mapper) {
    while (mapper.kept_bytes() > 0) {
      std::this_thread::yield();
    }
  }
  void fill(PageId page, int value) { std::memset(device_.page_address(page), value, kPage); }

  device::CpuDevice device_{device::Arena::create({.page_bytes = kPage, .page_count = 16}).value(),
                            {}};
  memory::Window window_ = memory::Window::create(device_, 4 * kPage).value();
  Heard heard_{};
};

TEST_F(MapperTest, MapsGivenPagesWhereTheWindowIs) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    fill(PageId(i), static_cast<int>(10 + i));
  }
  Mapper mapper(device_, 0, heard_.handlers());
  mapper.open({.model = kModel,
               .window = &window_,
               .pages = {PageId(2), PageId(0), PageId(3), PageId(1)},
               .image_bytes = 4 * kPage,
               .ready_bytes = 4 * kPage});
  heard_.wait_opened(1);
  ASSERT_TRUE(heard_.all_opened());
  EXPECT_EQ(window_.base()[0], std::byte{12});
  EXPECT_EQ(window_.base()[kPage], std::byte{10});
  EXPECT_EQ(window_.base()[4 * kPage - 1], std::byte{11});
  mapper.close(kModel, &window_, Mapper::After::kLetGo);
  heard_.wait_closed(1);
  EXPECT_EQ(window_.mapped_bytes(), 0U);
  wait_until_nothing_is_kept(mapper);
  EXPECT_GT(mapper.mapping(), Duration{});
  EXPECT_EQ(mapper.copied_bytes(), 0U);
}

TEST_F(MapperTest, AWindowThatIsKeptIsThereAgainWithItsPages) {
  const Mapper::Open open{.model = kModel,
                          .window = &window_,
                          .pages = {PageId(2), PageId(0), PageId(3), PageId(1)},
                          .image_bytes = 4 * kPage,
                          .ready_bytes = 4 * kPage};
  Mapper mapper(device_, 0, heard_.handlers());
  for (int turn = 1; turn <= 3; ++turn) {
    fill(PageId(3), turn);
    mapper.open(open);
    heard_.wait_opened(static_cast<std::size_t>(turn));
    ASSERT_TRUE(heard_.all_opened());
    EXPECT_EQ(mapper.kept_bytes(), 0U) << "it is in use";
    EXPECT_EQ(window_.base()[2 * kPage], std::byte{static_cast<unsigned char>(turn)});
    mapper.close(kModel, &window_, Mapper::After::kKeep);
    heard_.wait_closed(turn);
    EXPECT_EQ(mapper.kept_bytes(), 4 * kPage);
  }
  mapper.let_go(window_);
  wait_until_nothing_is_kept(mapper);
}

TEST_F(MapperTest, NoModelWaitsUntilAnotherIsUnmapped) {
  constexpr ModelId kOther{4};
  memory::Window other = memory::Window::create(device_, 4 * kPage).value();
  std::mutex mutex;
  std::condition_variable changed;
  bool queued = false;
  std::optional<std::uint64_t> kept;
  Mapper* raw = nullptr;
  Mapper mapper(device_,
                0,
                {.on_opened =
                     [&](ModelId model, const Result<void>& opened) {
                       EXPECT_TRUE(opened);
                       std::unique_lock lock(mutex);
                       changed.wait(lock, [&] { return queued; });
                       if (model == kOther) {
                         kept = raw->kept_bytes();
                         changed.notify_all();
                       }
                     },
                 .on_copied = [](ModelId /*model*/, std::uint64_t /*bytes*/) {},
                 .on_closed = [](ModelId /*model*/) {}});
  raw = &mapper;
  mapper.open({.model = kModel,
               .window = &window_,
               .pages = pages(8, 4),
               .image_bytes = 4 * kPage,
               .ready_bytes = 4 * kPage});
  mapper.close(kModel, &window_, Mapper::After::kLetGo);
  mapper.open(copy_to(kOther, other, 4));
  std::unique_lock lock(mutex);
  queued = true;
  changed.notify_all();
  changed.wait(lock, [&] { return kept.has_value(); });
  EXPECT_EQ(*kept, 4 * kPage) << "the other's window was there before this one was unmapped";
}

TEST_F(MapperTest, NoKeptWindowShowsPagesThatAreUsedOtherwise) {
  constexpr ModelId kOther{4};
  memory::Window other = memory::Window::create(device_, 4 * kPage).value();
  Mapper mapper(device_, 0, heard_.handlers());
  for (int turn = 1; turn <= 50; ++turn) {
    mapper.open({.model = kModel,
                 .window = &window_,
                 .pages = pages(8, 4),
                 .image_bytes = 4 * kPage,
                 .ready_bytes = 4 * kPage});
    mapper.close(kModel, &window_, turn % 2 == 0 ? Mapper::After::kKeep : Mapper::After::kLetGo);
    heard_.wait_closed(2 * turn - 1);
    if (turn % 3 == 0) {  // Two of them become KV.
      mapper.drop_kept(pages(8, 2));
      EXPECT_LE(mapper.kept_bytes(), 4 * kPage) << "10 and 11, and 12 and 13 of the other's";
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
      fill(PageId(i), turn + static_cast<int>(i));
    }
    mapper.open(turn % 5 == 0 ? Mapper::Open{.model = kOther,
                                             .window = &other,
                                             .pages = pages(10, 4),
                                             .image_bytes = 4 * kPage,
                                             .ready_bytes = 4 * kPage}
                              : copy_to(kOther, other, 10));
    heard_.wait_opened(static_cast<std::size_t>(2 * turn));
    ASSERT_TRUE(heard_.all_opened());
    if (turn % 5 != 0) {
      heard_.wait_all_copied(turn - turn / 5);
      EXPECT_EQ(other.base()[0], std::byte{static_cast<unsigned char>(turn)});
      EXPECT_EQ(other.base()[3 * kPage], std::byte{static_cast<unsigned char>(turn + 3)});
    }
    EXPECT_LE(mapper.kept_bytes(), 2 * kPage) << "10 and 11 are shown no longer";
    mapper.close(kOther, &other, Mapper::After::kLetGo);
    heard_.wait_closed(2 * turn);
  }
  mapper.let_go(pages(0, 16));
  wait_until_nothing_is_kept(mapper);
}

TEST_F(MapperTest, CopiesAsFarAsTheSourceIsThere) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    fill(PageId(i), static_cast<int>(20 + i));
    fill(PageId(8 + i), 0);
  }
  constexpr std::uint64_t kBytes = 4 * kPage - 100;
  Mapper mapper(device_, 0, heard_.handlers());
  mapper.allow_copy(kModel, kBytes);  // Of a model that is not open: says nothing.
  mapper.open({.model = kModel,
               .window = &window_,
               .pages = pages(8, 4),
               .source = pages(0, 4),
               .image_bytes = kBytes,
               .ready_bytes = kPage + 7});
  heard_.wait_opened(1);
  while (mapper.copied_bytes() < kPage + 7) {
    std::this_thread::yield();
  }
  EXPECT_EQ(mapper.copied_bytes(), kPage + 7);
  EXPECT_EQ(window_.base()[kPage + 6], std::byte{21});
  EXPECT_EQ(window_.base()[kPage + 7], std::byte{0});
  mapper.allow_copy(kModel, kBytes);
  heard_.wait_copied(kBytes);
  EXPECT_EQ(window_.base()[3 * kPage], std::byte{23});
  EXPECT_EQ(window_.base()[kBytes], std::byte{0}) << "nothing is written behind the image";
}

TEST_F(MapperTest, CopiesWhatSomebodyWaitsForFirst) {
  constexpr ModelId kUrgent{4};
  memory::Window other = memory::Window::create(device_, 4 * kPage).value();
  std::mutex mutex;
  std::condition_variable changed;
  bool prioritised = false;
  std::vector<ModelId> done;
  Mapper mapper(device_,
                0,
                {.on_opened = [](ModelId /*model*/, const Result<void>& /*opened*/) {},
                 .on_copied =
                     [&](ModelId model, std::uint64_t bytes) {
                       std::unique_lock lock(mutex);
                       changed.wait(lock, [&] { return prioritised; });
                       if (bytes == 4 * kPage) {
                         done.push_back(model);
                         changed.notify_all();
                       }
                     },
                 .on_closed = [](ModelId /*model*/) {}});
  mapper.prioritise(kUrgent);  // Of a model that is not open: says nothing.
  mapper.open(copy_to(kModel, window_, 4));
  mapper.open(copy_to(kUrgent, other, 8));
  mapper.prioritise(kUrgent);
  std::unique_lock lock(mutex);
  prioritised = true;
  changed.notify_all();
  changed.wait(lock, [&] { return done.size() == 2; });
  EXPECT_EQ(done, (std::vector{kUrgent, kModel}));
}

// What waits for requests is prioritised when it is open: a prewarm must not hold up its window.
TEST_F(MapperTest, OpensAModelWhileAnotherIsCopied) {
  constexpr ModelId kLater{4};
  memory::Window other = memory::Window::create(device_, 4 * kPage).value();
  std::mutex mutex;
  std::condition_variable changed;
  bool both = false;
  std::vector<std::string> heard;
  const auto hear = [&](std::string what) {
    heard.push_back(std::move(what));
    changed.notify_all();
  };
  Mapper mapper(device_,
                0,
                {.on_opened =
                     [&](ModelId model, const Result<void>& /*opened*/) {
                       const std::lock_guard lock(mutex);
                       hear("opened " + std::to_string(model.value()));
                     },
                 .on_copied =
                     [&](ModelId model, std::uint64_t bytes) {
                       std::unique_lock lock(mutex);
                       changed.wait(lock, [&] { return both; });
                       if (bytes == 4 * kPage) {
                         hear("copied " + std::to_string(model.value()));
                       }
                     },
                 .on_closed = [](ModelId /*model*/) {}});
  mapper.open(copy_to(kModel, window_, 4));
  mapper.open(copy_to(kLater, other, 8));
  std::unique_lock lock(mutex);
  both = true;
  changed.notify_all();
  changed.wait(lock, [&] { return heard.size() == 4; });
  EXPECT_EQ(heard[1], "opened 4") << "before the other is copied";
  EXPECT_EQ(heard[2], "copied " + std::to_string(kModel.value()));
}

TEST_F(MapperTest, ClosingEndsACopyAtOnce) {
  constexpr std::uint64_t kSlow = 1'000'000;  // [bytes/s]: the copy would take 65 ms.
  Mapper mapper(device_, kSlow, heard_.handlers());
  mapper.open(copy_to(kModel, window_, 8));
  heard_.wait_opened(1);
  mapper.close(kModel, &window_, Mapper::After::kLetGo);
  heard_.wait_closed(1);
  EXPECT_LT(mapper.copied_bytes(), 4 * kPage);
  EXPECT_LT(heard_.copied(), 4 * kPage);
  // The same window again, as when the model comes back.
  mapper.open({.model = kModel,
               .window = &window_,
               .pages = pages(0, 4),
               .image_bytes = 4 * kPage,
               .ready_bytes = 4 * kPage});
  heard_.wait_opened(2);
  EXPECT_TRUE(heard_.all_opened());
}

/// On the emulated driver: 64 pages of the host, to a GPU's.
class GpuMapperTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kImagePages = 64;  // In 32 pieces.
  static constexpr std::uint64_t kBytes = kImagePages * kGpuPage;

  Mapper::Open load() {
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < kImagePages; ++i) {
      std::memset(device_->host_page_address(PageId(i)), static_cast<int>(i + 1), kGpuPage);
      pages.emplace_back(i);
    }
    return {.model = kModel,
            .window = &window_,
            .pages = {pages.rbegin(), pages.rend()},
            .source = pages,
            .image_bytes = kBytes,
            .ready_bytes = kBytes};
  }
  /// The first byte of page `page` of the window, as the GPU sees it.
  std::byte first_byte(std::uint64_t page) {
    const auto stream = device_->create_stream().value();
    device::Buffer byte = device_->allocate(device::Place::kHost, 4).value();
    stream->copy(byte.data(), window_.base() + page * kGpuPage, 4);
    EXPECT_TRUE(stream->synchronize());
    return byte.data()[0];
  }

  emulator::EmulatedDriver driver_{"memory=64MiB,granularity=65536"};
  std::unique_ptr<device::CudaDevice> device_ =
      device::CudaDevice::create(
          {.page_bytes = kGpuPage,
           .bytes = 2 * kBytes,
           .driver = emulator::EmulatedDriver::open().value()},
          device::Arena::create({.page_bytes = kGpuPage, .page_count = kImagePages}).value())
          .value();
  memory::Window window_ = memory::Window::create(*device_, kBytes).value();
  Heard heard_{};
};

TEST_F(GpuMapperTest, TheNextPieceIsEnqueuedBeforeOneIsWaitedFor) {
  Mapper mapper(*device_, 0, heard_.handlers());
  mapper.open(load());
  heard_.wait_copied(kBytes);
  heard_.wait_opened(1);
  ASSERT_TRUE(heard_.all_opened());
  // But for the last piece there is always one behind.
  EXPECT_GE(driver_.calls("wait with more behind"), 31U);
  for (const std::uint64_t page : {0U, 17U, 63U}) {
    EXPECT_EQ(first_byte(page), std::byte(page + 1));
  }
}

TEST_F(GpuMapperTest, PagesThatFollowEachOtherAreOneCopy) {
  Mapper mapper(*device_, 0, heard_.handlers());
  Mapper::Open image = load();
  std::ranges::reverse(image.pages);
  std::swap(image.pages[40], image.pages[41]);  // A piece of two pages that do not.
  const unsigned long before = driver_.calls("cuMemcpyAsync");
  mapper.open(std::move(image));
  heard_.wait_copied(kBytes);
  heard_.wait_opened(1);
  ASSERT_TRUE(heard_.all_opened());
  EXPECT_EQ(driver_.calls("cuMemcpyAsync") - before, 31U + 2U) << "of 32 pieces";
  for (const std::uint64_t page : {0U, 17U, 40U, 41U, 63U}) {
    EXPECT_EQ(first_byte(page), std::byte(page + 1));
  }
}

TEST_F(GpuMapperTest, NoCopyWaitsForAMapping) {
  Mapper mapper(*device_, 0, heard_.handlers());
  driver_.hold("cuMemMap");
  mapper.open(load());
  heard_.wait_copied(kBytes);  // While nothing is mapped.
  driver_.wait_held("cuMemMap");
  driver_.let_go("cuMemMap");
  heard_.wait_opened(1);
  EXPECT_TRUE(heard_.all_opened());
  EXPECT_EQ(first_byte(40), std::byte{41});
}

TEST_F(GpuMapperTest, AWindowWithoutAnImageToCopyHoldsUpNoCopy) {
  memory::Window other = memory::Window::create(*device_, kBytes).value();
  Mapper mapper(*device_, 0, heard_.handlers());
  driver_.hold("cuMemMap");
  Mapper::Open resident = load();
  resident.model = ModelId{4};
  resident.window = &other;
  resident.source.clear();
  for (PageId& page : resident.pages) {
    page = PageId(page.value() + kImagePages);
  }
  mapper.open(resident);
  driver_.wait_held("cuMemMap");
  mapper.open(load());
  heard_.wait_copied(kBytes);
  driver_.let_go("cuMemMap");
  heard_.wait_opened(2);
  EXPECT_TRUE(heard_.all_opened());
}

TEST_F(GpuMapperTest, AMappingThatFailsIsToldWhenItsCopiesHaveEnded) {
  Mapper mapper(*device_, 0, heard_.handlers());
  driver_.fail("cuMemMap", 9, device::kCudaOutOfMemory);
  mapper.open(load());
  heard_.wait_opened(1);
  EXPECT_FALSE(heard_.all_opened());
  mapper.close(kModel, &window_, Mapper::After::kLetGo);
  heard_.wait_closed(1);
  EXPECT_TRUE(mapper.is_idle());
}

TEST_F(GpuMapperTest, ALoadThatIsClosedEndsWhereverItIs) {
  Mapper mapper(*device_, 0, heard_.handlers());
  for (int turn = 1; turn <= 20; ++turn) {
    mapper.open(load());
    if (turn % 3 == 0) {
      heard_.wait_copied(1);
    }
    mapper.close(kModel, &window_, Mapper::After::kKeep);
    heard_.wait_closed(turn);
    EXPECT_EQ(window_.mapped_bytes(), 0U);
  }
  EXPECT_TRUE(mapper.is_idle());
}

}  // namespace
}  // namespace heddle::worker
