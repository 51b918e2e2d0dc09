#include "twin/worker.h"

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kModel{1};
constexpr std::uint64_t kPage = 1000;

/// A device of 10 pages at the end of a link of a page each 10 ms; a step takes 2 ms, and its pace
/// is 20 ms and 1 ms a token. The model has 5 pages in 5 layers.
struct Rig {
  Agenda agenda{};
  Faults faults{FaultPlan{}};
  ClusterTimes times{};
  Paths paths{};
  Pipes pipes{times, paths, agenda, faults};
  TwinDevice device;
  std::map<ModelId, TwinModel> models{
      {kModel,
       {.model = {.id = kModel,
                  .image_bytes = 5 * kPage,
                  .footprint = {.image_pages = 5,
                                .kv = {{.tokens_per_block = 4, .blocks_per_page = 1}}}},
        .layers = 5,
        .body_bytes = 4 * kPage,
        .step = {.fixed = 2e-3}}}};
  std::vector<std::pair<Instant, core::TokenEvent>> tokens{};
  std::vector<std::pair<Instant, core::WorkerReport>> said{};
  std::shared_ptr<Worker> worker{};

  static TwinDevice paced() {
    return {.worker = {.step = {.budget = 100ms, .max_batch_tokens = 64}},
            .pace_step = 20ms,
            .pace_token = 1ms,
            .link = 1e5,
            .step_overhead = {}};
  }

  explicit Rig(TwinDevice it = paced()) : device(std::move(it)) {
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < 10; ++i) {
      pages.emplace_back(i);
    }
    worker = std::make_shared<Worker>(
        device,
        WorkerEpoch(1),
        pages,
        Surroundings{.models = models,
                     .page_count = 200,
                     .agenda = agenda,
                     .faults = faults,
                     .pipes = pipes},
        [this](const Worker& /*from*/, const core::WorkerReport& report) {
          if (const auto* produced = std::get_if<core::TokensProduced>(&report)) {
            for (const core::TokenEvent& token : produced->tokens) {
              tokens.emplace_back(agenda.now(), token);
            }
          } else {
            said.emplace_back(agenda.now(), report);
          }
        });
  }

  void load(core::ImageSource source, std::uint64_t ready, std::uint64_t version = 0) {
    std::vector<PageId> pages;
    for (std::uint64_t i = 100; i < 105; ++i) {
      pages.emplace_back(i);
    }
    worker->hear(core::LoadModel{.model = kModel,
                                 .basis = {.epoch = WorkerEpoch(1), .version = version},
                                 .source = source,
                                 .pages = pages,
                                 .image_bytes = 5 * kPage,
                                 .ready_bytes = ready,
                                 .footprint = models.at(kModel).model.footprint});
  }
  void submit(std::int64_t prompt, std::int64_t answer) {
    core::Submit submit{.request = RequestId(1),
                        .model = kModel,
                        .prompt = std::vector<TokenId>(static_cast<std::size_t>(prompt)),
                        .choices = {{}},
                        .due = 1s};
    submit.choices[0].params.max_tokens = answer;
    worker->hear(submit);
  }
  void run(Instant until) {
    bool passed = false;
    agenda.at(until, [&] { passed = true; });
    while (!passed) {
      agenda.advance();
    }
  }
};

TEST(TwinWorker, CopiesAnImageWhileTheFirstStepWaitsForIt) {
  Rig rig;
  rig.load(core::ImageSource::kShared, 5 * kPage);
  rig.run(Instant(1ms));
  rig.submit(6, 3);
  rig.run(Instant(1s));
  ASSERT_EQ(rig.tokens.size(), 3U);
  EXPECT_EQ(rig.tokens[0].first, Instant(50ms + 400us)) << "the last layer, when all have come";
  EXPECT_EQ(rig.tokens[1].first - rig.tokens[0].first, 21ms);
  EXPECT_EQ(rig.tokens[2].second.finish, spec::FinishReason::kLength);
}

TEST(TwinWorker, APartOfAPromptDoesNotWaitForTheHead) {
  TwinDevice device = Rig::paced();
  device.pace_step = device.pace_token = {};
  device.worker.step.max_batch_tokens = 4;
  Rig rig(device);
  rig.load(core::ImageSource::kShared, 5 * kPage);  // 10 ms each; the last is the head.
  rig.run(Instant(1ms));
  rig.submit(6, 1);
  rig.run(Instant(1s));
  ASSERT_EQ(rig.tokens.size(), 1U);
  EXPECT_EQ(rig.worker->steps(), 2U);
  EXPECT_EQ(rig.tokens[0].first, Instant(50ms + 400us))
      << "the rest, which was left, waited for it";
}

TEST(TwinWorker, PagesThatAreGivenNeedNoLink) {
  Rig rig;
  rig.load(core::ImageSource::kGiven, 5 * kPage);
  rig.run(Instant(1ms));
  rig.submit(6, 1);
  rig.run(Instant(1s));
  ASSERT_EQ(rig.tokens.size(), 1U);
  EXPECT_EQ(rig.tokens[0].first, Instant(1ms + 26ms));
  EXPECT_EQ(rig.worker->steps(), 1U);
}

TEST(TwinWorker, ADeadOneDoesAndHearsNothing) {
  Rig rig;
  rig.load(core::ImageSource::kShared, 5 * kPage);
  rig.run(Instant(1ms));
  rig.submit(6, 3);
  rig.run(Instant(20ms));
  rig.worker->die();
  const std::size_t said = rig.said.size();
  rig.submit(6, 3);
  rig.run(Instant(1s));
  EXPECT_EQ(rig.said.size(), said);
  EXPECT_TRUE(rig.tokens.empty());
  EXPECT_EQ(rig.worker->steps(), 0U);
}

TEST(TwinWorker, OpeningFailsAsPlanned) {
  Rig rig;
  rig.faults = Faults(FaultPlan{.open_failures = 2});
  std::uint64_t failed = 0;  // Each is a surprise, by which the worker's version rises.
  for (int i = 0; i < 20; ++i) {
    rig.said.clear();
    rig.load(core::ImageSource::kGiven, 5 * kPage, failed);
    rig.run(rig.agenda.now() + 1ms);
    rig.worker->hear(core::EvictModel{.model = kModel,
                                      .basis = {.epoch = WorkerEpoch(1), .version = failed},
                                      .mode = core::EvictMode::kNow});
    rig.run(rig.agenda.now() + 1ms);
    for (const auto& [at, report] : rig.said) {
      failed += std::holds_alternative<core::LoadFailed>(report) ? 1U : 0U;
    }
  }
  EXPECT_EQ(failed, 2U);
}

TEST(TwinWorker, EvictionGivesPagesBack) {
  Rig rig;
  rig.load(core::ImageSource::kShared, 5 * kPage);
  rig.run(Instant(1ms));
  rig.submit(6, 3);
  rig.run(Instant(200ms));
  rig.worker->hear(core::EvictModel{
      .model = kModel, .basis = {.epoch = WorkerEpoch(1)}, .mode = core::EvictMode::kNow});
  rig.run(Instant(1s));
  std::int64_t free = -1;
  bool evicted = false;
  for (const auto& [at, report] : rig.said) {
    if (const auto* device = std::get_if<core::DeviceReport>(&report)) {
      free = device->usage.free;
    }
    evicted = evicted || std::holds_alternative<core::ModelEvicted>(report);
  }
  EXPECT_TRUE(evicted);
  EXPECT_EQ(free, 10);
}

}  // namespace
}  // namespace heddle::twin
