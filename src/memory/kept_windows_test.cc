#include "memory/kept_windows.h"

#include <array>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/fake/fake_device.h"
#include "memory/device_under_test.h"

namespace heddle::memory {
namespace {

using device::Access;
using device::PageId;

constexpr std::size_t kPage = std::size_t{16} << 10U;

class KeptWindowsTest : public testing::Test {
 protected:
  Window window(std::size_t pages) { return Window::create(device_, pages * kPage).value(); }
  static std::vector<PageId> pages(std::initializer_list<std::uint64_t> numbers) {
    return {numbers.begin(), numbers.end()};
  }
  [[nodiscard]] std::optional<PageId> shown(const Window& window, std::size_t index) const {
    return device_.page_at(window.base() + index * kPage);
  }
  std::size_t calls() const { return device_.calls().size(); }

  device::FakeDevice device_{kPage, 32};
  KeptWindows kept_{device_};
};

TEST_F(KeptWindowsTest, WhatComesBackAsItWasIsNotMappedAgain) {
  Window a = window(3);
  ASSERT_TRUE(kept_.map(a, pages({4, 5, 9}), Access::kRead));
  kept_.keep(a);
  EXPECT_EQ(a.mapped_bytes(), 0U);
  EXPECT_EQ(kept_.bytes(), 3 * kPage);
  EXPECT_EQ(kept_.mappings(), 2U);
  const std::size_t before = calls();
  ASSERT_TRUE(kept_.map(a, pages({4, 5, 9}), Access::kRead));
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(a.mapped_bytes(), 3 * kPage);
  EXPECT_EQ(kept_.bytes(), 0U);
}

TEST_F(KeptWindowsTest, OnlyWhatMovedIsMappedAgain) {
  Window a = window(4);
  ASSERT_TRUE(kept_.map(a, pages({1, 2, 3, 4}), Access::kRead));
  kept_.keep(a);
  const std::size_t before = calls();
  ASSERT_TRUE(kept_.map(a, pages({1, 7, 3, 4}), Access::kRead));
  EXPECT_EQ(std::vector(device_.calls().begin() + static_cast<std::ptrdiff_t>(before),
                        device_.calls().end()),
            (std::vector<std::string>{"unmap 16384 16384", "map 16384 1 pages"}));
  EXPECT_EQ(shown(a, 1), PageId(7));
}

TEST_F(KeptWindowsTest, APageGoesBeforeItIsPutToAnotherUse) {
  Window a = window(4);
  Window b = window(2);
  ASSERT_TRUE(kept_.map(a, pages({1, 2, 3, 4}), Access::kRead));
  kept_.keep(a);
  kept_.drop(pages({2, 3, 20}));
  EXPECT_EQ(shown(a, 0), PageId(1));
  EXPECT_EQ(shown(a, 1), std::nullopt);
  EXPECT_EQ(shown(a, 2), std::nullopt);
  EXPECT_EQ(shown(a, 3), PageId(4));
  kept_.check_invariants();
  ASSERT_TRUE(kept_.map(b, pages({3, 2}), Access::kRead));
  kept_.drop(pages({3, 2}));
  EXPECT_EQ(shown(b, 0), PageId(3)) << "it is in use";
}

TEST_F(KeptWindowsTest, WhatIsMappedInPartIsItsUsersAndTheRestIsKept) {
  Window a = window(4);
  ASSERT_TRUE(kept_.map(a, pages({1, 2, 3, 4}), Access::kRead));
  kept_.keep(a);
  ASSERT_TRUE(kept_.map(a, pages({1, 2}), Access::kRead));
  EXPECT_EQ(kept_.bytes(), 2 * kPage);
  kept_.drop(pages({1, 3}));
  EXPECT_EQ(shown(a, 0), PageId(1));
  EXPECT_EQ(shown(a, 2), std::nullopt);
  kept_.keep(a);  // It is given up before it was mapped to its end.
  EXPECT_EQ(kept_.bytes(), 3 * kPage);
  kept_.check_invariants();
}

TEST_F(KeptWindowsTest, WhatWasLetGoGoesBitByBitUnlessItIsWantedAgain) {
  Window a = window(4);
  Window b = window(2);
  ASSERT_TRUE(kept_.map(a, pages({1, 2, 3, 4}), Access::kRead));
  ASSERT_TRUE(kept_.map(b, pages({8, 9}), Access::kRead));
  kept_.keep(a);
  kept_.keep(b);
  kept_.let_go(pages({9}));
  kept_.let_go(a);
  kept_.drop_some(3);
  EXPECT_EQ(shown(a, 2), std::nullopt);
  EXPECT_EQ(shown(a, 3), PageId(4));
  kept_.hold(a);
  kept_.drop_some(3);
  EXPECT_EQ(shown(b, 0), std::nullopt);
  EXPECT_FALSE(kept_.has_let_go());
  EXPECT_EQ(shown(a, 3), PageId(4));
  kept_.check_invariants();
}

TEST(KeptWindows, ThoseKeptLongestGoWhereThereAreTooManyMappings) {
  device::FakeDevice device(kPage, 32);
  device.limit_mappings(5);
  KeptWindows kept(device);
  std::vector<Window> windows;
  for (std::uint64_t i = 0; i < 3; ++i) {
    windows.push_back(Window::create(device, 2 * kPage).value());
    ASSERT_TRUE(windows.back().map(std::array{PageId(4 * i), PageId(4 * i + 2)}, Access::kRead));
  }
  kept.keep(windows[0]);
  kept.keep(windows[1]);
  EXPECT_FALSE(kept.has_let_go());
  kept.keep(windows[2]);
  while (kept.has_let_go()) {
    kept.drop_some(1);
  }
  EXPECT_EQ(kept.mappings(), 4U);
  EXPECT_EQ(device.page_at(windows[0].base()), std::nullopt);
  EXPECT_EQ(device.page_at(windows[2].base()), PageId(8));
}

/// A worker and its host in small: images come and go, pages change hands, and what a page holds is
/// written by whoever owns it. Windows are what a model reads.
class SmallWorld {
 public:
  SmallWorld(device::Kind kind, std::uint64_t seed)
      : subject_(kind, kPage, kPages), kept_(subject_.device()), rng_(seed) {
    for (std::uint64_t page = 0; page < kPages; ++page) {
      free_.insert(PageId(page));
      write(PageId(page));
    }
    for (std::size_t i = 0; i < kModels; ++i) {
      windows_.push_back(Window::create(subject_.device(), kImage * kPage).value());
    }
  }

  void step() {
    Model& model = models_.at(rng_.below(kModels));
    const auto index = static_cast<std::size_t>(&model - models_.data());
    switch (rng_.below(6)) {
      case 0:
      case 1:
        open(model, windows_[index]);
        break;
      case 2:
      case 3:
        if (model.open) {
          model.open = false;
          kept_.keep(windows_[index]);
        }
        break;
      case 4:
        drop_image(model, windows_[index]);
        break;
      default:
        use_free_page();
    }
    if (rng_.below(3) == 0) {
      kept_.drop_some(1 + rng_.below(3));
    }
    check();
  }

 private:
  static constexpr std::uint64_t kPages = 40;
  static constexpr std::size_t kModels = 7;
  static constexpr std::size_t kImage = 5;
  struct Model {
    std::vector<PageId> pages{};  ///< Of its image, if there is one.
    bool open = false;
  };

  void write(PageId page) {
    const auto value = static_cast<unsigned char>(rng_.below(256));
    values_[page] = value;
    subject_.fill(subject_.device().page_address(page), value, kPage);
  }

  void open(Model& model, Window& window) {
    if (model.open) {
      return;
    }
    if (model.pages.empty()) {  // Read anew, into any pages.
      if (free_.size() < kImage) {
        return;
      }
      for (std::size_t i = 0; i < kImage; ++i) {
        auto page = std::next(free_.begin(), static_cast<std::ptrdiff_t>(rng_.below(free_.size())));
        model.pages.push_back(*page);
        kept_.drop({&*page, 1});
        write(*page);
        free_.erase(page);
      }
    }
    kept_.hold(window);
    kept_.drop(model.pages, &window);
    const std::size_t first = rng_.below(kImage + 1);
    ASSERT_TRUE(kept_.map(window, std::span(model.pages).first(first), Access::kRead));
    if (rng_.below(8) == 0) {
      kept_.keep(window);  // It was given up.
      return;
    }
    ASSERT_TRUE(kept_.map(window, std::span(model.pages).subspan(first), Access::kRead));
    while (window.populate_some(kPage)) {
    }
    model.open = true;
  }

  void drop_image(Model& model, Window& window) {
    if (!model.open && !model.pages.empty()) {
      if (rng_.below(2) == 0) {
        kept_.let_go(window);
      } else {
        kept_.let_go(model.pages);
      }
      free_.insert(model.pages.begin(), model.pages.end());
      model.pages.clear();
    }
  }

  void use_free_page() {
    if (!free_.empty()) {
      const PageId page =
          *std::next(free_.begin(), static_cast<std::ptrdiff_t>(rng_.below(free_.size())));
      kept_.drop({&page, 1});
      for (const Window& window : windows_) {
        for (const auto& slot : window.kept()) {
          ASSERT_NE(slot, page) << "a window still shows a page that is about to be written";
        }
      }
      write(page);
    }
  }

  /// Every open model reads what the owner of its pages wrote, in order.
  void check() {
    kept_.check_invariants();
    for (std::size_t i = 0; i < kModels; ++i) {
      if (!models_.at(i).open) {
        ASSERT_EQ(windows_[i].mapped_bytes(), 0U);
        continue;
      }
      const std::byte* const read = subject_.read(windows_[i].base(), kImage * kPage);
      for (std::size_t at = 0; at < kImage; ++at) {
        const std::byte value{values_.at(models_.at(i).pages[at])};
        ASSERT_EQ(read[at * kPage], value);
        ASSERT_EQ(read[(at + 1) * kPage - 1], value);
      }
    }
  }

  DeviceUnderTest subject_;
  std::vector<Window> windows_{};
  KeptWindows kept_;
  Rng rng_;
  std::array<Model, kModels> models_{};
  std::set<PageId> free_{};
  std::map<PageId, unsigned char> values_{};
};

class KeptWindowsOnDevice : public testing::TestWithParam<device::Kind> {};

TEST_P(KeptWindowsOnDevice, RandomWorldsReadWhatTheirOwnersWrote) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SmallWorld world(GetParam(), seed);
    for (int i = 0; i < 400 && !HasFatalFailure(); ++i) {
      world.step();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KeptWindowsOnDevice, kDeviceKinds, kind_name);

}  // namespace
}  // namespace heddle::memory
