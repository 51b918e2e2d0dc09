#include "agent/agent_setup.h"

#include <gtest/gtest.h>

namespace heddle::agent {
namespace {

TEST(WorkerHello, HasWhatTheDeviceIs) {
  const AgentSetup setup{.page_bytes = 4096};
  const DeviceSetup device{.id = DeviceId{3},
                           .name = "gpu0",
                           .gpu = 2,
                           .pages = 64,
                           .kv_pages = 5,
                           .load_bandwidth = 1000,
                           .prefix_cache = 50,
                           .fixed_parts = 2};
  const rpc::WorkerHello hello =
      worker_hello(setup, device, WorkerEpoch{9}, {PageId{1}, PageId{5}});
  EXPECT_EQ(hello.device, DeviceId{3});
  EXPECT_EQ(hello.epoch, WorkerEpoch{9});
  EXPECT_EQ(hello.gpu, 2);
  EXPECT_EQ(hello.page_bytes, 4096U);
  EXPECT_EQ(hello.pages.size(), 2U) << "those that are free";
  EXPECT_EQ(hello.device_pages, 64) << "all there are";
  EXPECT_EQ(hello.load_bandwidth, 1000U);
  EXPECT_EQ(hello.prefix_cache, 50);
  EXPECT_EQ(hello.fixed_parts, 2);
  EXPECT_EQ(hello.kv_pages, 5);
  EXPECT_TRUE(hello.event_log.empty());
}

TEST(CoreOptions, HaveWhatDevicesHaveOfTheArena) {
  const AgentSetup setup{.host_pages = 9,
                         .devices = {{.id = DeviceId{3}, .pages = 64, .kv_pages = 5}}};
  const core::AgentOptions options = core_options(setup);
  ASSERT_EQ(options.devices.size(), 1U);
  EXPECT_EQ(options.devices[0].pages, 64);
  EXPECT_EQ(options.devices[0].kv_pages, 5);
  EXPECT_FALSE(options.devices[0].own_memory);
}

TEST(WorkerHello, EachLifeHasALogOfItsOwn) {
  const AgentSetup setup{.event_log = "/logs/events"};
  const rpc::WorkerHello hello = worker_hello(setup, {.id = DeviceId{3}}, WorkerEpoch{9}, {});
  EXPECT_EQ(hello.event_log, "/logs/events.worker.3.9");
}

}  // namespace
}  // namespace heddle::agent
