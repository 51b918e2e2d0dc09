#include "core/host_memory.h"

#include <variant>

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

constexpr DeviceId kRemembered{3};
constexpr WorkerEpoch kLife{7};
constexpr ModelId kFirstModel{5};
constexpr ModelId kNextModel{6};

WorkerSaid said(WorkerReport report, WorkerEpoch life = kLife) {
  return {.device = kRemembered, .epoch = life, .report = std::move(report)};
}

/// The only worker there is, as a manager would find it.
WorkerFound worker_of(const HostMemory& memory) {
  const std::vector<ManagerEvent> all = memory.all({});
  return all.empty() ? WorkerFound{} : std::get<WorkerFound>(all.front());
}

TEST(HostMemory, KnowsWhatAWorkerHasByWhatItSaid) {
  HostMemory memory;
  EXPECT_TRUE(memory.all({}).empty());
  memory.hear(WorkerUp{.device = kRemembered, .epoch = kLife});
  memory.hear(
      said(DeviceReport{.version = 2, .usage = {.total = 20}, .models = {{.model = kNextModel}}}));
  memory.hear(said(ModelServing{.model = kFirstModel}));
  memory.hear(said(LoadRefused{.model = ModelId(9), .version = 4}));
  const WorkerFound found = worker_of(memory);
  EXPECT_EQ(found.device, kRemembered);
  EXPECT_EQ(found.epoch, kLife);
  EXPECT_EQ(found.report.version, 4U) << "a command upon an earlier one would be refused";
  ASSERT_EQ(found.report.models.size(), 2U);
  EXPECT_EQ(found.report.models[0].model, kFirstModel);
  EXPECT_EQ(found.report.models[0].residency, Residency::kServing);
  EXPECT_EQ(found.report.models[1].residency, Residency::kLoading);
  memory.hear(said(LoadFailed{.model = kFirstModel, .version = 5}));
  ASSERT_EQ(memory.all({}).size(), 3U) << "found, its report, and a failure that nobody answered";
  EXPECT_TRUE(std::holds_alternative<LoadFailed>(std::get<WorkerSaid>(memory.all({})[2]).report));
  memory.hear(said(ModelEvicted{.model = kFirstModel}));
  EXPECT_EQ(worker_of(memory).report.models.size(), 1U);
  EXPECT_EQ(memory.all({}).size(), 2U);
  EXPECT_TRUE(memory.lives(kRemembered, kLife));
  EXPECT_FALSE(memory.lives(kRemembered, WorkerEpoch(8)));
}

TEST(HostMemory, AModelThatIsOnItsWayIsThere) {
  HostMemory memory;
  memory.hear(WorkerUp{.device = kRemembered, .epoch = kLife});
  memory.hear(said(DeviceReport{.models = {{.model = kNextModel, .residency = Residency::kWarm}}}));
  const std::vector<ManagerEvent> all =
      memory.all({{kRemembered, {kFirstModel, kNextModel}}, {DeviceId(9), {kFirstModel}}});
  const auto& models = std::get<WorkerFound>(all[0]).report.models;
  ASSERT_EQ(models.size(), 2U) << "one was not reported yet";
  EXPECT_EQ(models[0].residency, Residency::kLoading);
  EXPECT_EQ(models[1].residency, Residency::kWarm);
  memory.hear(ImageFailed{.device = kRemembered, .epoch = kLife, .model = kNextModel});
  EXPECT_TRUE(worker_of(memory).report.models.empty());
}

TEST(HostMemory, ADeathTakesTheWorkerAndItsGroupsButNoImages) {
  HostMemory memory;
  memory.hear(WorkerUp{.device = kRemembered, .epoch = kLife});
  memory.hear(GroupFormed{.device = kRemembered, .epoch = kLife, .model = kFirstModel});
  memory.hear(ImageState{.model = kFirstModel, .bytes = 9});
  EXPECT_EQ(memory.all({}).size(), 3U) << "found, its group and an image; it has said nothing";
  memory.hear(WorkerDown{.device = kRemembered, .epoch = WorkerEpoch(6)});
  EXPECT_EQ(memory.all({}).size(), 3U) << "that life was over";
  memory.hear(WorkerDown{.device = kRemembered, .epoch = kLife});
  ASSERT_EQ(memory.all({}).size(), 1U);
  EXPECT_EQ(std::get<ImageState>(memory.all({})[0]).bytes, 9U);
  memory.hear(ImageState{.model = kFirstModel});
  EXPECT_TRUE(memory.all({}).empty());
  EXPECT_TRUE(memory.lives().empty());
}

TEST(HostMemory, LoansAndEnginesAreKnownWhileThereIsSomethingOfThem) {
  HostMemory memory;
  memory.hear(GuestState{.device = kRemembered, .model = kFirstModel, .pages = 3, .refused = true});
  memory.hear(
      EngineSaid{.device = kRemembered, .model = kNextModel, .news = EngineNews::kSuspended});
  memory.hear(EngineSaid{.device = kRemembered, .model = kNextModel, .news = EngineNews::kRefused});
  ASSERT_EQ(memory.all({}).size(), 2U);
  EXPECT_EQ(std::get<GuestState>(memory.all({})[0]).pages, 3);
  EXPECT_FALSE(std::get<GuestState>(memory.all({})[0]).refused) << "who asked has heard that";
  EXPECT_EQ(std::get<EngineSaid>(memory.all({})[1]).news, EngineNews::kSuspended);
  memory.hear(GuestState{.device = kRemembered, .model = kFirstModel});
  memory.hear(EngineSaid{.device = kRemembered, .model = kNextModel, .news = EngineNews::kLost});
  EXPECT_TRUE(memory.all({}).empty());
}

TEST(HostMemory, TheKvOfElasticEnginesIsKnownWhileTheyRun) {
  HostMemory memory;
  memory.hear(EngineSaid{.device = kRemembered, .model = kNextModel, .news = EngineNews::kServing});
  memory.hear(EngineKv{.device = kRemembered, .model = kNextModel, .limit_pages = 4});
  memory.hear(EngineKv{.device = kRemembered, .model = kNextModel, .limit_pages = 7});
  ASSERT_EQ(memory.all({}).size(), 2U);
  EXPECT_EQ(std::get<EngineKv>(memory.all({})[1]).limit_pages, 7);
  memory.hear(
      EngineSaid{.device = kRemembered, .model = kNextModel, .news = EngineNews::kSuspended});
  EXPECT_EQ(memory.all({}).size(), 1U);
}

TEST(HostMemory, AHostThatIsToGoIsSoForTheNextManagerToo) {
  HostMemory memory;
  memory.hear(HostLeaving{.host = HostId(2)});
  ASSERT_EQ(memory.all({}).size(), 1U);
  EXPECT_EQ(std::get<HostLeaving>(memory.all({})[0]).host, HostId(2));
  memory.hear(HostLeaving{.host = HostId(2), .leaving = false});
  EXPECT_TRUE(memory.all({}).empty());
}

}  // namespace
}  // namespace heddle::core
