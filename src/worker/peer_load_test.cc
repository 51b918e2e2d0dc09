#include "worker/peer_load.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cpu/arena.h"
#include "device/cuda/cuda_device.h"
#include "rpc/link.h"
#include "worker/peer_assist.h"

namespace heddle::worker {
namespace {

using emulator::EmulatedDriver;

constexpr std::size_t kPage = std::size_t{64} << 10U;
constexpr std::uint64_t kImagePages = 40;
constexpr std::uint64_t kImageBytes = kImagePages * kPage - 100;
constexpr std::uint64_t kShare = Mapper::kShareBytesMax;
constexpr ModelId kModel{3};

/// Two GPUs, as in two processes, and an image in the host's memory that both have pinned.
class DetourTest : public testing::Test {
 protected:
  explicit DetourTest(const std::string& more = "")
      : driver_("devices=2,memory=64MiB,granularity=64KiB" + more) {
    for (std::uint64_t i = 0; i < arena_.page_count(); ++i) {
      std::memset(arena_.base() + i * kPage, static_cast<int>(i + 1), kPage);
    }
    for (int gpu = 0; gpu < 2; ++gpu) {
      device::Arena arena = device::Arena::attach(arena_.fd(), kPage).value();
      devices_.push_back(device::CudaDevice::create({.ordinal = gpu,
                                                     .page_bytes = kPage,
                                                     .bytes = 2 * kImagePages * kPage,
                                                     .driver = EmulatedDriver::open().value()},
                                                    std::move(arena))
                             .value());
    }
    window_ = memory::Window::create(*devices_[0], kImagePages * kPage).value();
  }
  ~DetourTest() override {
    peer_loads_.clear();
    peer_assist_.reset();
    mapper_.reset();
    window_.reset();
    devices_.clear();
    EXPECT_EQ(driver_.alive(), "");
  }

  /// `on_copied` is called in the mapper's thread.
  void make_mapper(std::function<void(std::uint64_t)> on_copied = [](std::uint64_t) {}) {
    const auto note = [this](const auto& what) {
      const std::lock_guard lock(mutex_);
      what();
      changed_.notify_all();
    };
    mapper_ = std::make_unique<Mapper>(
        *devices_[0],
        0,
        Mapper::Handlers{.on_opened =
                             [=, this](ModelId, const Result<void>& opened) {
                               EXPECT_TRUE(opened);
                               note([&] { opened_ = true; });
                             },
                         .on_copied =
                             [=, this](ModelId, std::uint64_t bytes) {
                               on_copied(bytes);
                               note([&] { copied_ = bytes; });
                             },
                         .on_closed = [=, this](ModelId) { note([&] { ++closed_; }); },
                         .on_lost = [](const Error& error) { ADD_FAILURE() << error.message; }});
  }
  void make_peer_assist() {
    peer_assist_ = std::make_unique<PeerAssist>(*devices_[1], [this] { return idle_.load(); });
  }
  /// Loads the image while the peer assists; it comes as it is, whichever way.
  void load_beside_a_peer() {
    make_peer_assist();
    peer_assist_->serve(make_peer_load());
    load();
    wait_copied();
    expect_image();
  }
  /// A peer load over GPU 1, and the socket to it.
  Descriptor make_peer_load() {
    auto sockets = rpc::packet_pair().value();
    peer_loads_.push_back(
        std::make_unique<PeerLoad>(*devices_[0], *mapper_, 1, std::move(sockets.second)));
    return std::move(sockets.first);
  }

  void load(std::uint64_t first_page = 0) {
    Mapper::Open open{.model = kModel,
                      .window = &*window_,
                      .image_bytes = kImageBytes,
                      .ready_bytes = kImageBytes};
    for (std::uint64_t i = 0; i < kImagePages; ++i) {
      open.pages.emplace_back(first_page + kImagePages - 1 - i);
      open.source.emplace_back(i);
    }
    mapper_->open(std::move(open));
  }
  /// All of the image may be in place before the window shows it.
  void wait_copied() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return copied_ == kImageBytes && opened_; });
  }
  void close() {
    mapper_->close(kModel, &*window_, Mapper::After::kLetGo);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ > 0; });
    closed_ = 0;
    copied_ = 0;
    opened_ = false;
  }
  void expect_image() {
    const auto stream = devices_[0]->create_stream().value();
    const auto bytes = devices_[0]->allocate(device::Place::kHost, kImageBytes).value();
    stream->copy(bytes.data(), window_->base(), kImageBytes);
    ASSERT_TRUE(stream->synchronize());
    for (std::uint64_t i = 0; i < kImageBytes; ++i) {
      ASSERT_EQ(std::to_integer<std::uint64_t>(bytes.data()[i]), (i / kPage + 1) % 256) << i;
    }
  }
  template <class What>
  static void wait_until(const What& what) {
    while (!what()) {
      std::this_thread::yield();
    }
  }

  EmulatedDriver driver_;
  device::Arena arena_ =
      device::Arena::create({.page_bytes = kPage, .page_count = kImagePages}).value();
  std::vector<std::unique_ptr<device::CudaDevice>> devices_{};
  std::optional<memory::Window> window_{};
  std::atomic<bool> idle_ = true;
  std::unique_ptr<Mapper> mapper_{};
  std::unique_ptr<PeerAssist> peer_assist_{};
  std::vector<std::unique_ptr<PeerLoad>> peer_loads_{};

  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::uint64_t copied_ = 0;
  bool opened_ = false;
  int closed_ = 0;
};

TEST_F(DetourTest, AnImageComesOverBothGpusLinks) {
  make_mapper([this](std::uint64_t) {  // The own link waits until the other has done something.
    wait_until([this] { return mapper_->peer_load_bytes() > 0; });
  });
  load_beside_a_peer();
  EXPECT_EQ(mapper_->copied_bytes(), kImageBytes);
  EXPECT_GT(mapper_->peer_load_bytes(), 0U);
  EXPECT_LT(mapper_->peer_load_bytes(), kImageBytes) << "the own link had the first part";
  EXPECT_EQ(peer_assist_->peer_assist_bytes(), mapper_->peer_load_bytes());
}

TEST_F(DetourTest, TheFrontIsNeverSaidToBeThereBeforeItIs) {
  make_mapper([this](std::uint64_t bytes) {
    // What is said to be there can be read, whoever brought it.
    const auto stream = devices_[0]->create_stream().value();
    const auto word = devices_[0]->allocate(device::Place::kHost, 1).value();
    for (std::uint64_t at = 0; at < bytes; at += kPage) {
      const PageId page(kImagePages - 1 - at / kPage);
      stream->copy(word.data(), devices_[0]->page_address(page), 1);
      ASSERT_TRUE(stream->synchronize());
      ASSERT_EQ(std::to_integer<std::uint64_t>(*word.data()), at / kPage + 1);
    }
  });
  load_beside_a_peer();
}

TEST_F(DetourTest, ARelayWithALoadOfItsOwnIsLeftAlone) {
  idle_ = false;
  make_mapper();
  load_beside_a_peer();
  EXPECT_EQ(mapper_->peer_load_bytes(), 0U);
  EXPECT_EQ(peer_assist_->peer_assist_bytes(), 0U);
}

TEST_F(DetourTest, ARelayThatBeginsALoadSendsTheDetourAwayAndMayLendAgain) {
  make_mapper([this](std::uint64_t) {
    wait_until([this] { return mapper_->peer_load_bytes() > 0; });
    idle_ = false;
  });
  load_beside_a_peer();
  const std::uint64_t before = mapper_->peer_load_bytes();
  close();
  idle_ = true;
  load();
  wait_copied();
  expect_image();
  EXPECT_GE(mapper_->peer_load_bytes(), before);
  EXPECT_EQ(mapper_->copied_bytes(), 2 * kImageBytes);
}

/// Plays a peer: lends memory, and hears what is asked for.
class FakePeer {
 public:
  FakePeer(device::Device& device, Descriptor socket)
      : staging_(device.allocate_shared(kPeerSlots * kPeerSlotBytes).value()),
        socket_(std::move(socket)) {
    EXPECT_EQ(receive_request(socket_).value().ask, PeerAsk::kBegin);
    const PeerReply granted{.answer = PeerAnswer::kGranted, .bytes = staging_.buffer.bytes()};
    EXPECT_TRUE(send_reply(socket_, granted, &staging_.descriptor));
  }
  PeerRequest hear() { return receive_request(socket_).value(); }
  void say(const PeerReply& reply) { EXPECT_TRUE(send_reply(socket_, reply)); }

 private:
  device::SharedBuffer staging_;
  Descriptor socket_;
};

TEST_F(DetourTest, WhatADeadRelayHadIsCopiedOverTheOwnLink) {
  std::atomic<bool> dead = false;
  make_mapper([&](std::uint64_t) { wait_until([&] { return dead.load(); }); });
  Descriptor socket = make_peer_load();
  load();
  {
    FakePeer peer(*devices_[1], std::move(socket));
    for (std::uint32_t slot = 0; slot < kPeerSlots; ++slot) {
      const PeerRequest asked = peer.hear();
      EXPECT_EQ(asked.ask, PeerAsk::kFetch);
      EXPECT_EQ(asked.slot, slot);
      EXPECT_FALSE(asked.pieces.empty());
    }
  }
  wait_until([&] { return peer_loads_[0]->ended(); });
  dead = true;
  wait_copied();
  expect_image();
  EXPECT_EQ(mapper_->peer_load_bytes(), 0U);
}

TEST_F(DetourTest, WhatComesAfterTheModelWasClosedIsNotWritten) {
  std::atomic<bool> asked = false;
  make_mapper([&](std::uint64_t) { wait_until([&] { return asked.load(); }); });
  Descriptor socket = make_peer_load();
  load();
  FakePeer peer(*devices_[1], std::move(socket));
  (void)peer.hear();
  (void)peer.hear();
  mapper_->close(kModel, &*window_, Mapper::After::kLetGo);
  asked = true;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ > 0; });
  }
  peer.say({.answer = PeerAnswer::kFetched, .slot = 0});
  peer.say({.answer = PeerAnswer::kFetched, .slot = 1});
  EXPECT_EQ(peer.hear().ask, PeerAsk::kEnd);
  EXPECT_EQ(mapper_->peer_load_bytes(), 0U);
}

TEST_F(DetourTest, OneDetourAtATimeHasTheRelay) {
  make_peer_assist();
  auto first = rpc::packet_pair().value();
  auto second = rpc::packet_pair().value();
  peer_assist_->serve(std::move(first.first));
  peer_assist_->serve(std::move(second.first));
  const auto ask = [](const Descriptor& socket) {
    EXPECT_TRUE(send_request(socket, {.ask = PeerAsk::kBegin}));
    Descriptor beside;
    return receive_reply(socket, std::chrono::minutes(1), beside).value().answer;
  };
  EXPECT_EQ(ask(first.second), PeerAnswer::kGranted);
  EXPECT_EQ(ask(second.second), PeerAnswer::kBusy);
  EXPECT_TRUE(send_request(second.second, {.ask = PeerAsk::kFetch}));
  Descriptor none;
  EXPECT_EQ(receive_reply(second.second, std::chrono::minutes(1), none).value().answer,
            PeerAnswer::kBusy)
      << "the memory is another's";
  first.second = Descriptor();  // It dies.
  wait_until([&] { return ask(second.second) == PeerAnswer::kGranted; });
}

TEST_F(DetourTest, ARelayWithoutMemoryLendsNothing) {
  driver_.fail("cuMemCreate", 1, device::kCudaOutOfMemory);
  make_mapper();
  load_beside_a_peer();
  EXPECT_EQ(mapper_->peer_load_bytes(), 0U);
}

/// With pages of two shares each.
TEST(LargeImage, ComesInSharesAsLongAsThereIsAWholeOne) {
  const EmulatedDriver driver("devices=2,memory=256MiB");
  const auto host = device::Arena::create({.page_bytes = 2 * kShare, .page_count = 3}).value();
  std::vector<std::unique_ptr<device::CudaDevice>> devices;
  for (int gpu = 0; gpu < 2; ++gpu) {
    devices.push_back(
        device::CudaDevice::create({.ordinal = gpu,
                                    .page_bytes = 2 * kShare,
                                    .bytes = 6 * kShare,
                                    .driver = EmulatedDriver::open().value()},
                                   device::Arena::attach(host.fd(), 2 * kShare).value())
            .value());
  }
  memory::Window window = memory::Window::create(*devices[0], 6 * kShare).value();
  std::atomic<std::uint64_t> copied = 0;
  std::unique_ptr<Mapper> mapper;
  const auto on_copied = [&](ModelId, std::uint64_t bytes) {
    while (mapper->peer_load_bytes() < 2 * kShare) {
      std::this_thread::yield();  // The own link does no more than the two pages that it began.
    }
    copied = bytes;
  };
  mapper =
      std::make_unique<Mapper>(*devices[0],
                               0,
                               Mapper::Handlers{.on_opened = [](ModelId, const Result<void>&) {},
                                                .on_copied = on_copied,
                                                .on_closed = [](ModelId) {},
                                                .on_lost = [](const Error&) {}});
  PeerAssist peer(*devices[1], [] { return true; });
  auto sockets = rpc::packet_pair().value();
  peer.serve(std::move(sockets.first));
  mapper->open({.model = kModel,
                .window = &window,
                .pages = {PageId(0), PageId(1), PageId(2)},
                .source = {PageId(0), PageId(1), PageId(2)},
                .image_bytes = 6 * kShare,
                .ready_bytes = 6 * kShare});
  while (mapper->copied_bytes() < 2 * kShare) {
    std::this_thread::yield();
  }
  {
    const PeerLoad peer_load(*devices[0], *mapper, 1, std::move(sockets.second));
    while (copied < 6 * kShare) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(mapper->peer_load_bytes(), 2 * kShare);
  mapper.reset();
}

class UnlinkedTest : public DetourTest {
 protected:
  UnlinkedTest() : DetourTest(",peers=2") {}
};

TEST_F(UnlinkedTest, GpusWithNothingButPcieBetweenThemUseOnePath) {
  make_mapper();
  make_peer_assist();
  peer_assist_->serve(make_peer_load());
  wait_until([&] { return peer_loads_[0]->ended(); });
  load();
  wait_copied();
  expect_image();
  EXPECT_EQ(mapper_->peer_load_bytes(), 0U);
}

}  // namespace
}  // namespace heddle::worker
