#include "sim/planes/live_device.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// One GPU with a model that serves there, and what a device makes of the requests that come.
class DeviceWorld {
 public:
  using Check = std::function<void(const Notice&, const World&, Actions&, LiveDevice&)>;

  TestRun run(const std::vector<TraceRow>& rows, const Check& check) {
    TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
      if (notice.kind == NoticeKind::kStart) {
        map.emplace(world, LiveOptions{});
        device.emplace(*map, GpuId(0));
        device->come_up();
        device->residents()[kModel].replica = actions.start({.model = ModelId(0),
                                                             .stages = {{.gpus = {GpuId(0)}}},
                                                             .source = WeightSource::kNothing},
                                                            Reason::kStatic);
      }
      if (notice.kind == NoticeKind::kArrival) {
        const LiveRequest& request = world.request(notice.request);
        device->submit({.live = notice.request,
                        .request = RequestId(request.number.value() + 1),
                        .as = kModel,
                        .due = request.arrival + 2s});
      }
      check(notice, world, actions, *device);
    });
    return run_world(test_cluster(1, 1), test_models(1), plane, rows);
  }

  static constexpr ModelId kModel{1};
  std::optional<LiveMap> map{};
  std::optional<LiveDevice> device{};
};

/// Hands on whatever may go.
std::size_t hand_on_all(const World& world, Actions& actions, LiveDevice& device) {
  const auto admitted = device.admit(world);
  for (const LiveDevice::Waiting& each : admitted) {
    EXPECT_TRUE(actions.dispatch(each.live, *device.resident(each.as)->replica, Reason::kOnTime));
  }
  return admitted.size();
}

// Six prompts come at once. The engine is given as much as it reads in a step, and more when that
// is read.
TEST(LiveDevice, GivesEnginesWhatTheyReadAtOnce) {
  DeviceWorld there;
  std::vector<std::size_t> handed;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(row_at(1 + 1e-6 * i, 0, 2000, 2));
  }
  const TestRun run =
      there.run(rows, [&](const auto&, const auto& world, auto& actions, auto& device) {
        if (const std::size_t count = hand_on_all(world, actions, device); count > 0) {
          handed.push_back(count);
        }
      });
  EXPECT_EQ(run.counts.completed, 6);
  EXPECT_GE(handed.size(), 3);
}

// A report tells of what is there; the next one that only counts differ in comes 100 ms later.
TEST(LiveDevice, ReportsAsAWorkerDoes) {
  DeviceWorld there;
  int reports = 0;
  there.run({row_at(1, 0, 500, 400), row_at(1.02, 0, 500, 400), row_at(1.3, 0, 500, 400)},
            [&](const Notice& notice, const World& world, Actions& actions, LiveDevice& device) {
              hand_on_all(world, actions, device);
              device.change(notice.kind == NoticeKind::kServing);
              const auto report = device.report_changes(world);
              if (notice.kind == NoticeKind::kServing) {
                ASSERT_TRUE(report);
                ASSERT_EQ(report->models.size(), 1);
                EXPECT_TRUE(report->models[0].complete);
                EXPECT_EQ(report->models[0].kv_pages, 0);
                EXPECT_EQ(report->usage.free, world.free_pages(GpuId(0)));
              } else if (notice.kind == NoticeKind::kArrival) {
                // The first comes a second after the last report, the second at once after that.
                EXPECT_EQ(report.has_value(), notice.request != LiveId(1));
                reports += report ? 1 : 0;
                if (report) {
                  EXPECT_EQ(report->models[0].sequences, notice.request == LiveId(0) ? 1 : 3);
                  EXPECT_EQ(report->short_sequences, 0);
                }
              }
            });
  EXPECT_EQ(reports, 2);
}

// What does not fit beside what runs waits for memory, is told of, and may be called back.
TEST(LiveDevice, TellsOfWhoWaitsForMemory) {
  DeviceWorld there;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 5; ++i) {
    rows.push_back(row_at(1 + i, 0, 150'000, 20'000));
  }
  bool looked = false;
  there.run(rows,
            [&](const Notice& notice, const World& world, Actions& actions, LiveDevice& device) {
              hand_on_all(world, actions, device);
              if (notice.kind == NoticeKind::kFirstToken && !looked) {
                device.change(true);
                const auto report = device.report_changes(world);
                ASSERT_TRUE(report);
                EXPECT_EQ(report->models[0].sequences, 5);
                if (report->short_sequences > 0) {
                  looked = true;
                  EXPECT_GT(report->short_pages, 0);
                  EXPECT_EQ(report->short_model, DeviceWorld::kModel);
                  const auto back = device.take(world, DeviceWorld::kModel, 1);
                  ASSERT_EQ(back.size(), 1);
                  device.submit(back[0]);
                }
              }
            });
  EXPECT_TRUE(looked);
}

// Orders of another life are of no account, and neither are those from before a surprise.
TEST(LiveDevice, LivesOneLifeAfterTheOther) {
  DeviceWorld there;
  there.run({}, [](const Notice&, const World&, Actions&, LiveDevice& device) {
    const WorkerEpoch first = device.epoch();
    EXPECT_TRUE(device.lives(first));
    EXPECT_EQ(device.surprise(), 1);
    device.go_down();
    EXPECT_FALSE(device.lives(first));
    EXPECT_TRUE(device.residents().empty());
    device.come_up();
    EXPECT_GT(device.epoch(), first);
    EXPECT_EQ(device.version(), 0);
  });
}

}  // namespace
}  // namespace heddle::sim
