#include "manager/hosts.h"

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

constexpr HostId kOne{1};
constexpr HostId kTwo{2};

class FakeHost final : public host::HostPort {
 public:
  explicit FakeHost(ModelId engine, core::EngineState state = {})
      : engine_(engine), state_(state) {}
  void set_models(const std::vector<host::Assignment>& /*models*/) override {}
  void carry_out(const host::HostOrder& /*order*/) override {}
  void send(DeviceId /*device*/, WorkerEpoch /*epoch*/, core::WorkerMessage /*said*/) override {}
  void describe(core::DeviceStatus& device) const override { device.restarts += 7; }
  [[nodiscard]] ledger::PoolUsage host_usage() const override {
    ledger::PoolUsage usage{.total = 10, .free = 4};
    usage.by_kind[1].held = 3;
    return usage;
  }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override {
    return {{.model = engine_, .state = state_}};
  }
  [[nodiscard]] std::vector<core::FetchStatus> fetches() const override {
    return {{.model = "adder",
             .from = "s3://b/a",
             .active = engine_ == ModelId(3),
             .bytes = 10,
             .total_bytes = 40,
             .fetched_bytes = 10,
             .peer_bytes = 4}};
  }
  [[nodiscard]] std::optional<core::GroupHost> address() const override { return where; }
  [[nodiscard]] bool shares_cache() const override { return shares; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return {"it is warm"}; }
  [[nodiscard]] std::optional<HttpAddress> engine_address(ModelId /*model*/) const override {
    return std::nullopt;
  }

  std::optional<core::GroupHost> where{};
  bool shares = false;

 private:
  ModelId engine_;
  core::EngineState state_;
};

TEST(Hosts, NamesAndNumbersAreThoseOfAllHosts) {
  FakeHost first(ModelId(9));
  FakeHost second(ModelId(3));
  Hosts hosts;
  hosts.add(kTwo,
            second,
            {.name = "h2",
             .devices = {{.id = device_id(kTwo, 0), .name = "cpu0"}},
             .guest_peers = {.pairs = {{device_id(kTwo, 0), device_id(kTwo, 1)}}},
             .network = 3'000'000'000'000});
  hosts.add(kOne, first, {.devices = {{.id = device_id(kOne, 0), .name = "cpu0"}}});
  EXPECT_EQ(hosts.ids(), (std::vector{kOne, kTwo}));
  EXPECT_EQ(hosts.devices().size(), 2U);
  EXPECT_EQ(hosts.device_name(device_id(kOne, 0)), "cpu0") << "it has no name";
  EXPECT_EQ(hosts.device_name(device_id(kTwo, 0)), "h2/cpu0");
  EXPECT_EQ(hosts.device_name(device_id(kTwo, 1)), "");
  EXPECT_EQ(hosts.guest_peers().pairs.size(), 1U);
  EXPECT_EQ(hosts.networks(), (std::map<HostId, std::int64_t>{{kTwo, 1'000'000'000'000}}));
  EXPECT_EQ(hosts.port(kTwo), &second);
  EXPECT_EQ(hosts.port(HostId(5)), nullptr);
  EXPECT_EQ(hosts.usage().total, 20);
  EXPECT_EQ(hosts.usage().by_kind[1].held, 6);
  EXPECT_EQ(hosts.engines().front().model, ModelId(3));
  const core::FetchStatus fetch = hosts.fetches().at("adder");
  EXPECT_TRUE(fetch.active) << "on one of them";
  EXPECT_EQ(fetch.bytes, 10U);
  EXPECT_EQ(fetch.fetched_bytes, 20U) << "on both";
  EXPECT_EQ(fetch.peer_bytes, 8U);
  EXPECT_EQ(hosts.troubles(), (std::vector<std::string>{"it is warm", "host h2: it is warm"}));
  std::vector<core::DeviceStatus> devices = {{.id = device_id(kOne, 0)},
                                             {.id = device_id(HostId(5), 0)}};
  hosts.describe(devices);
  EXPECT_EQ(devices[0].restarts, 7U);
  EXPECT_EQ(devices[1].restarts, 0U);
}

TEST(Hosts, AnEngineThatSeveralHaveIsShownWhereItIs) {
  FakeHost stopped(ModelId(4));
  FakeHost runs(ModelId(4), core::EngineState::kRunning);
  Hosts hosts;
  hosts.add(kOne, stopped, {});
  ASSERT_EQ(hosts.engines().size(), 1U);
  EXPECT_EQ(hosts.engines()[0].state, core::EngineState::kStopped);
  hosts.add(kTwo, runs, {});
  ASSERT_EQ(hosts.engines().size(), 1U);
  EXPECT_EQ(hosts.engines()[0].state, core::EngineState::kRunning);
}

TEST(Hosts, OffersAreKeptByModelAndHost) {
  FakeHost port(ModelId(1));
  Hosts hosts;
  hosts.offered(kOne, {{.name = "a"}});
  EXPECT_TRUE(hosts.offers_of("a").empty()) << "of a host that is not there";
  hosts.add(kOne, port, {});
  hosts.offered(kOne, {{.name = "a", .digest = "x"}, {.name = "b"}});
  EXPECT_EQ(hosts.offers_of("a").at(kOne).digest, "x");
  hosts.offered(kOne, {{.name = "b"}});
  EXPECT_TRUE(hosts.offers_of("a").empty());
}

TEST(Hosts, ThoseThatShareTheirCachesHoldWhatTheyOffer) {
  FakeHost one(ModelId(1));
  FakeHost two(ModelId(1));
  FakeHost silent(ModelId(1));
  Hosts hosts;
  hosts.add(kOne, one, {});
  hosts.add(kTwo, two, {});
  hosts.add(HostId(3), silent, {});
  for (FakeHost* host : {&one, &two}) {
    host->shares = true;
    host->where = core::GroupHost{.id = host == &one ? kOne : kTwo, .name = "h"};
  }
  silent.where = core::GroupHost{.id = HostId(3)};
  EXPECT_EQ(hosts.sharing(kOne), one.where);
  EXPECT_EQ(hosts.sharing(HostId(3)), std::nullopt);
  EXPECT_EQ(hosts.sharing(HostId(9)), std::nullopt);
  hosts.offered(kOne, {{.name = "a", .digest = "x", .fetched = true}, {.name = "engine"}});
  hosts.offered(kTwo, {{.name = "a", .digest = "x"}, {.name = "engine"}});
  hosts.offered(HostId(3), {{.name = "a", .digest = "x"}});
  const host::Holder holder = hosts.holder("a", hosts.offers_of("a"));
  EXPECT_EQ(holder.model, "a");
  EXPECT_EQ(holder.hosts, (std::vector{*two.where, *one.where})) << "who had it first";
  EXPECT_TRUE(hosts.holder("engine", hosts.offers_of("engine")).hosts.empty());
}

}  // namespace
}  // namespace heddle::manager
