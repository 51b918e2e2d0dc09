// What the models of a GPU share beside pages of their own, as the executor sees to it.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cpu/arena.h"
#include "device/cuda/cuda_device.h"
#include "engine/test_host.h"
#include "engine/workspace.h"
#include "worker/device_executor.h"

namespace heddle::worker {
namespace {

using emulator::EmulatedDriver;

constexpr std::size_t kPage = std::size_t{64} << 10U;
constexpr std::int64_t kPages = 400;
constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kPrompt = 16;
constexpr ModelId kModel{1};

/// An executor on the emulated GPU, and the image of a model in pinned pages of the host.
class DeviceOverheadTest : public testing::Test {
 protected:
  DeviceOverheadTest() {
    const auto checkpoint =
        store::Checkpoint::open(engine::golden_directory() / "llama-gqa-sharded").value();
    spec_ = checkpoint.config.model;
    layout_ = store::plan_image(spec_, spec::DType::kI8);
    const std::uint64_t image = store::pages_for(layout_.bytes, kPage);
    device::Arena arena = device::Arena::create({.page_bytes = kPage, .page_count = image}).value();
    std::vector<std::byte*> addresses;
    for (std::uint64_t page = 0; page < image; ++page) {
      image_.emplace_back(page);
      addresses.push_back(arena.base() + page * kPage);
    }
    HEDDLE_CHECK(
        store::load_image(checkpoint.tensors, layout_, {.pages = addresses, .page_bytes = kPage})
            .has_value());
    device_ = device::CudaDevice::create({.page_bytes = kPage,
                                          .bytes = kPages * kPage,
                                          .driver = EmulatedDriver::open().value()},
                                         std::move(arena))
                  .value();
    std::vector<PageId> pool;
    for (std::uint64_t page = 0; page < kPages; ++page) {
      pool.emplace_back(page);
    }
    executor_ = DeviceExecutor::create(*device_,
                                       {.pages = pool, .max_batch_tokens = kTokens},
                                       {.on_event = [this](const auto& event) { hear(event); },
                                        .on_report = [](const auto&) {},
                                        .on_lost = [](const auto&) {}})
                    .value();
    executor_->describe({.model = kModel, .spec = spec_, .dtype = spec::DType::kI8});
  }

  void hear(const core::WorkerEvent& event) {
    const std::lock_guard lock(mutex_);
    const auto* progress = std::get_if<core::CopyProgress>(&event);
    copied_ = copied_ || (progress != nullptr && progress->bytes == layout_.bytes);
    opened_ = opened_ || std::holds_alternative<core::ModelOpened>(event);
    closed_ = closed_ || std::holds_alternative<core::ModelClosed>(event);
    changed_.notify_all();
  }

  std::vector<core::WorkerEvent> carry_out(core::WorkerCommand command) {
    std::vector<core::WorkerEvent> events;
    EXPECT_TRUE(executor_->carry_out(std::move(command), events));
    return events;
  }
  void open() {
    carry_out(core::OpenModel{.model = kModel,
                              .source = core::ImageSource::kShared,
                              .pages = image_,
                              .image_bytes = layout_.bytes,
                              .ready_bytes = layout_.bytes});
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return copied_ && opened_; });
  }
  std::int64_t keep_graphs(std::int64_t pages) {
    const auto events = carry_out(core::KeepGraphs{.pages = pages});
    return std::get<core::GraphsKept>(events.at(0)).pages;
  }
  void step(std::int64_t tokens) {
    carry_out(core::RunStep{
        .plan = {.batches = {{.model = kModel,
                              .slices = {{.sequence = core::SequenceId(1), .tokens = tokens}}}}}});
  }
  /// A prompt, then `steps` steps of one token.
  void run(int steps) {
    carry_out(core::AddSequence{.sequence = core::SequenceId(1),
                                .model = kModel,
                                .tokens = std::vector<TokenId>(kPrompt, 3),
                                .prompt_tokens = kPrompt,
                                .params = {.max_tokens = 100, .ignore_eos = true}});
    step(kPrompt);
    for (int i = 0; i < steps; ++i) {
      step(1);
    }
    carry_out(core::RemoveSequence{.sequence = core::SequenceId(1)});
  }
  /// Pages that the driver could give.
  [[nodiscard]] std::int64_t driver_has() const {
    std::size_t free = 0;
    std::size_t total = 0;
    device_->context().make_current();
    HEDDLE_CHECK(device_->context().api().cuMemGetInfo_v2(&free, &total) == 0);
    return static_cast<std::int64_t>(free / kPage);
  }
  [[nodiscard]] unsigned long replays() const { return driver_.calls("cuGraphLaunch"); }

  EmulatedDriver driver_{"memory=64MiB,granularity=64KiB"};
  std::mutex mutex_{};
  std::condition_variable changed_{};
  bool copied_ = false;
  bool opened_ = false;
  bool closed_ = false;
  spec::ModelSpec spec_{};
  store::ImageLayout layout_{};
  std::vector<PageId> image_{};
  std::unique_ptr<device::CudaDevice> device_{};
  std::unique_ptr<DeviceExecutor> executor_{};
};

TEST_F(DeviceOverheadTest, StepsTakeNothingOfTheDeviceButForWhatIsSent) {
  const auto bytes = engine::workspace_bytes(device::Kind::kCuda, spec_, spec::DType::kI8, kTokens);
  carry_out(core::FitWorkspace{.pages = static_cast<std::int64_t>(store::pages_for(bytes, kPage))});
  open();
  const unsigned long before = driver_.calls("cuMemAlloc_v2");
  run(3);
  EXPECT_EQ(driver_.calls("cuMemAlloc_v2") - before, 3U)
      << "ids, tables and the like; sampled tokens; what counts blocks";
}

TEST_F(DeviceOverheadTest, RecordingsHaveMemoryOfPagesThatAreGivenBack) {
  open();
  run(4);
  EXPECT_EQ(replays(), 0U) << "nobody gave pages for them";
  const std::int64_t before = driver_has();
  EXPECT_EQ(keep_graphs(100), 100);
  EXPECT_EQ(driver_has(), before + 100);
  run(4);
  EXPECT_GT(replays(), 0U);

  EXPECT_EQ(keep_graphs(60), 60);
  EXPECT_EQ(driver_has(), before + 60);
  EXPECT_EQ(keep_graphs(0), 0);
  EXPECT_EQ(driver_has(), before);
  const unsigned long replayed = replays();
  run(4);
  EXPECT_EQ(replays(), replayed);

  EXPECT_EQ(keep_graphs(100), 100);
  run(4);
  EXPECT_GT(replays(), replayed) << "made again";
}

TEST_F(DeviceOverheadTest, IfTheirMemoryCannotBeHadAgainThePagesStayAway) {
  open();
  run(1);
  const std::int64_t before = driver_has();
  keep_graphs(10);
  driver_.fail("cuMemCreate", 3, 2);  // Out of memory.
  EXPECT_EQ(keep_graphs(0), 10);
  EXPECT_EQ(driver_has(), before + 10);
  run(3);  // The device is not lost.
  EXPECT_EQ(keep_graphs(0), 0);
  EXPECT_EQ(driver_has(), before);
}

}  // namespace
}  // namespace heddle::worker
