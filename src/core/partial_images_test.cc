// Images of which a device has a part, and reads the rest at the host: what agent and worker make
// of them.

#include <vector>

#include <gtest/gtest.h>

#include "core/agent_core.h"
#include "core/test_find.h"
#include "core/test_worker.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kPartial{1};
constexpr ModelId kWhole{2};
constexpr DeviceId kOnly{0};
constexpr WorkerEpoch kPartEpoch{1};

/// An agent of a host with 10 pages. One model has an image of 8, of which a device has 3; the
/// other one of 4.
class AgentOfPartialImages : public testing::Test {
 protected:
  AgentOfPartialImages() {
    tell(AgentModels{
        .models = {
            {.id = kPartial, .image_bytes = 800, .footprint = {.image_pages = 3}, .host_pages = 8},
            {.id = kWhole, .image_bytes = 400, .footprint = {.image_pages = 4}}}});
    tell(StartAgent{});
    tell(WorkerConnected{.device = kOnly, .epoch = kPartEpoch});
  }

  std::vector<AgentCommand> tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    now_ += 1s;
    core_.step(now_, event, commands);
    core_.check_invariants();
    return commands;
  }
  std::vector<AgentCommand> load(ModelId model) {
    return tell(LoadOn{.device = kOnly, .model = model, .basis = {.epoch = kPartEpoch}});
  }

  Instant now_{1s};
  AgentCore core_{AgentOptions{.host_pages = 10, .devices = {{.id = kOnly, .pages = 12}}}};
};

TEST_F(AgentOfPartialImages, TheImageStaysTheHostsUntilTheModelIsEvicted) {
  const auto loaded = load(kPartial);
  const auto* sent = find<LoadModel>(loaded);
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->source, ImageSource::kShared);
  EXPECT_EQ(sent->pages.size(), 8U);
  EXPECT_EQ(sent->footprint.image_pages, 3);
  EXPECT_EQ(core_.host_usage().free, 2);
  tell(ReadEnded{.model = kPartial});
  tell(EvictFrom{.device = kOnly, .model = kPartial, .basis = {.epoch = kPartEpoch}});
  EXPECT_EQ(find<LoadModel>(load(kWhole)), nullptr) << "the image is in use, and not dropped";
  const auto evicted = tell(
      WorkerSaid{.device = kOnly, .epoch = kPartEpoch, .report = ModelEvicted{.model = kPartial}});
  EXPECT_NE(find<LoadModel>(evicted), nullptr) << "it made room";
}

TEST_F(AgentOfPartialImages, ADeadWorkerHoldsNoImage) {
  load(kPartial);
  tell(ReadEnded{.model = kPartial});
  tell(WorkerExited{.device = kOnly, .epoch = kPartEpoch});
  now_ += 60s;
  const auto again = tell(ReadProgress{.model = kPartial, .bytes = 800});
  ASSERT_NE(find<SpawnWorker>(again), nullptr);
  tell(WorkerConnected{.device = kOnly, .epoch = find<SpawnWorker>(again)->epoch});
  const auto other = tell(LoadOn{
      .device = kOnly, .model = kWhole, .basis = {.epoch = find<SpawnWorker>(again)->epoch}});
  EXPECT_NE(find<LoadModel>(other), nullptr) << "in the place of the image that nobody uses";
}

TEST(WorkerOfPartialImages, HasItsPartAndDoesNotSayThatItWasCopied) {
  test::TestWorker worker;
  LoadModel load = test::load_of(kPartial, 8);
  load.source = ImageSource::kShared;
  load.footprint.image_pages = 3;
  const std::int64_t free = test::kWorkerPages - 3 - 1;
  const auto commands = worker.tell(WorkerMessage{load});
  const auto* open = find<OpenModel>(commands);
  ASSERT_NE(open, nullptr);
  EXPECT_EQ(open->part_pages, 3);
  EXPECT_EQ(open->pages.size(), 8U);
  EXPECT_EQ(worker.core.report().usage.free, free);
  worker.tell(ModelOpened{.model = kPartial});
  EXPECT_EQ(find<ImageCopied>(worker.tell(CopyProgress{.model = kPartial, .bytes = 1000})),
            nullptr);
  load = test::load_of(kWhole, 8);
  load.source = ImageSource::kShared;
  EXPECT_EQ(find<OpenModel>(worker.tell(WorkerMessage{load}))->part_pages, 0);
  worker.tell(ModelOpened{.model = kWhole});
  EXPECT_NE(find<ImageCopied>(worker.tell(CopyProgress{.model = kWhole, .bytes = 1000})), nullptr);
}

}  // namespace
}  // namespace heddle::core
