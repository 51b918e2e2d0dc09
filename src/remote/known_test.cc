#include "remote/known.h"

#include <gtest/gtest.h>

#include "remote/test_host.h"

namespace heddle::remote {
namespace {

KnownDevices devices() {
  return {kHost, test_facts().devices};
}

KnownModels models() {
  KnownModels all;
  EXPECT_TRUE(all.take({{.name = "m", .digest = "d", .ids = {kModel}}}));
  return all;
}

TEST(Known, AHostSpeaksOfItsOwnDevicesAlone) {
  const DeviceId elsewhere = device_id(HostId(4), 0);
  EXPECT_TRUE(devices().check(kDevice));
  const Result<void> other = devices().check(elsewhere);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kCorrupt);
  EXPECT_EQ(other.error().message,
            "device 262144 is none of the 2 of host 3, which begin at 196608");
  EXPECT_FALSE(devices().check(device_id(kHost, 2))) << "it has two";
  EXPECT_TRUE(devices().check(FromHost(core::WorkerUp{.device = kDevice})));
  EXPECT_FALSE(devices().check(FromHost(core::WorkerUp{.device = elsewhere})));
  EXPECT_FALSE(devices().check(FromHost(core::WorkerSaid{.device = elsewhere})));
  EXPECT_FALSE(devices().check(FromHost(core::WorkerFound{.device = elsewhere})));
  EXPECT_FALSE(devices().check(FromHost(Told{.device = elsewhere})));
  EXPECT_FALSE(devices().check(FromHost(HostStatus{.devices = {{.id = elsewhere}}})));
  EXPECT_FALSE(devices().check(FromHost(HostStatus{.engines = {{.device = elsewhere}}})));
  EXPECT_TRUE(devices().check(FromHost(core::ImageState{.host = kHost})));
  EXPECT_FALSE(devices().check(FromHost(core::ImageState{.host = HostId(4)})));
  const host::OfferedRank rank{.footprints = {{elsewhere, {}}}};
  EXPECT_FALSE(devices().check(FromHost(Offers{.offers = {{.ranks = {rank}}}})));
  EXPECT_TRUE(devices().check(
      FromHost(Offers{.offers = {{.ranks = {{}}}, {.failure = Error{Code::kNotFound, "no"}}}})));
  EXPECT_FALSE(devices().check(FromHost(Offers{.offers = {{}}}))) << "where would it be?";
  EXPECT_FALSE(devices().check(
      FromHost(Offers{.offers = {{.ranks = {{}, {}}, .blocks = {{.devices = {kDevice}}}}}})));
  EXPECT_FALSE(
      devices().check(FromHost(Offers{.offers = {{.blocks = {{.devices = {elsewhere}}}}}})));
}

TEST(Known, FactsAreThoseOfTheHost) {
  EXPECT_TRUE(check_facts(test_facts(), kHost, "h3"));
  EXPECT_FALSE(check_facts(test_facts(), kHost, "h4"));
  EXPECT_FALSE(check_facts(test_facts(), HostId(4), "h3")) << "its devices are of host 3";
  host::HostFacts twice = test_facts();
  twice.devices.push_back(twice.devices.front());
  EXPECT_FALSE(check_facts(twice, kHost, "h3"));
  host::HostFacts pageless = test_facts();
  pageless.devices[0].page_bytes = 0;
  EXPECT_FALSE(check_facts(pageless, kHost, "h3"));
  host::HostFacts peers = test_facts();
  peers.guest_peers.pairs.emplace_back(kDevice, device_id(HostId(4), 0));
  EXPECT_FALSE(check_facts(peers, kHost, "h3"));
}

TEST(Known, AnIdKeepsItsMeaning) {
  KnownModels all = models();
  EXPECT_FALSE(all.take({{.name = "other", .digest = "d", .ids = {kModel}}}));
  EXPECT_FALSE(all.take({{.name = "m", .digest = "new", .ids = {kModel}}}));
  EXPECT_FALSE(all.take({{.name = "m", .digest = "d", .ids = {ModelId(8), kModel}}}))
      << "it was rank 0";
  EXPECT_FALSE(all.check(ModelId(8))) << "nothing of what was refused is taken over";
  EXPECT_TRUE(all.take({{.name = "m", .digest = "new", .ids = {ModelId(8)}}}));
  EXPECT_TRUE(all.check(kModel)) << "its last orders may be on their way";
  ASSERT_EQ(all.all().size(), 2U);
  EXPECT_EQ(all.all()[0].digest, "new");
  EXPECT_EQ(all.all()[1].digest, "d");
  EXPECT_TRUE(all.take({{.name = "m", .digest = "d", .ids = {kModel}}}));
  ASSERT_EQ(all.all().size(), 2U);
  EXPECT_EQ(all.all()[0].digest, "d");
}

TEST(Known, OrdersAreAboutWhatThereIs) {
  const DeviceId elsewhere = device_id(HostId(4), 0);
  const auto possible = [](const host::HostOrder& order) {
    return check_order(order, devices(), models()).has_value();
  };
  EXPECT_TRUE(possible(core::LoadOn{.device = kDevice, .model = kModel}));
  EXPECT_FALSE(possible(core::LoadOn{.device = elsewhere, .model = kModel}));
  core::LoadOn fetched{.device = kDevice, .model = kModel};
  fetched.peers.resize(2);
  EXPECT_TRUE(possible(fetched));
  fetched.peers.resize(17);
  EXPECT_FALSE(possible(fetched)) << "nobody asks so many hosts";
  EXPECT_FALSE(possible(core::LoadOn{.device = kDevice, .model = ModelId(8)}));
  EXPECT_FALSE(possible(core::EvictFrom{.device = elsewhere, .model = kModel}));
  EXPECT_TRUE(possible(core::Weave{.host = kDevice, .hot = kOther, .model = kModel}));
  EXPECT_FALSE(possible(core::Weave{.host = kDevice, .hot = elsewhere, .model = kModel}));
  EXPECT_FALSE(possible(core::Unweave{.host = elsewhere, .model = kModel}));
  EXPECT_FALSE(possible(core::FormGroup{}));
  EXPECT_TRUE(possible(core::FormGroup{
      .members = {{.device = kDevice, .model = kModel}, {.device = kOther, .model = kModel}}}));
  EXPECT_FALSE(possible(core::FormGroup{
      .members = {{.device = kDevice, .model = kModel}, {.device = elsewhere, .model = kModel}}}))
      << "it does not say where that host is";
  EXPECT_TRUE(possible(core::FormGroup{
      .members = {{.device = kDevice, .model = kModel}, {.device = elsewhere, .model = kModel}},
      .hosts = {{.id = HostId(4)}}}));
  EXPECT_FALSE(possible(core::FormGroup{.members = {{.device = elsewhere, .model = kModel}},
                                        .hosts = {{.id = HostId(4)}}}))
      << "none of it is here";
}

}  // namespace
}  // namespace heddle::remote
