#include "remote/remote_host.h"

#include <optional>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "remote/caller.h"
#include "remote/test_host.h"

namespace heddle::remote {
namespace {

using std::chrono::milliseconds;

/// A manager's RemoteHost, and an agent that says what a test has it say.
class RemoteHostTest : public ::testing::Test {
 protected:
  RemoteHostTest() {
    listener = test_listener(
        loop,
        net::self_of(cluster.issue(net::Role::kAgent, "h3")),
        {net::Role::kManager},
        [this](auto link, const auto& peer) {
          agent.emplace(
              loop.get_executor(),
              std::move(link),
              peer,
              Caller::Handlers{
                  .on_message = [this](const std::string& payload) { return hear(payload); },
                  .on_gone = [this](const Error& why) { ends.push_back(why.message); }});
        });
    host.emplace(loop.get_executor(),
                 RemoteHostSetup{.id = kHost,
                                 .name = "h3",
                                 .address = {.host = "127.0.0.1", .port = listener->port()},
                                 .term = 4},
                 net::self_of(cluster.issue(net::Role::kManager, "m1")),
                 RemoteHostHandlers{
                     .on_here = [this](host::HostFacts facts) { here.push_back(std::move(facts)); },
                     .on_known = [this] { ++known; },
                     .on_offers = [this](std::uint64_t revision,
                                         const auto& /*offers*/) { offers = revision; },
                     .on_event =
                         [this](core::ManagerEvent event) {
                           events.push_back(std::move(event));
                           if (destroy) {
                             host.reset();
                           }
                         },
                     .on_told = [this](DeviceId device, ModelId /*model*/) { told = device; },
                     .on_later_term = [this](std::uint64_t term) { later_terms.push_back(term); },
                     .on_loads = [this](const Loads& said) { loads.push_back(said); },
                     .on_gone = [this](const Error& why) { gone.push_back(why.message); }},
                 net::ConnectorOptions{
                     .backoff = {.first = milliseconds(1), .most = milliseconds(4), .seed = 1}});
  }

  Result<void> hear(const std::string& payload) {
    Result<ToHost> message = decode_to_host(payload);
    HEDDLE_CHECK(message.has_value());
    heard.push_back(std::move(*message));
    return {};
  }

  /// Until the agent has heard so many messages.
  void run_heard(std::size_t messages) {
    net::run_until(loop, [&] { return heard.size() >= messages; });
  }
  void say(const FromHost& message) { agent->send(encode(message)); }
  void be_there(bool remembers_loads = false, bool shares_cache = false) {
    run_heard(1);
    say(HostHere{.host = kHost,
                 .facts = test_facts(),
                 .remembers_loads = remembers_loads,
                 .shares_cache = shares_cache});
    net::run_until(loop, [&, before = here.size()] { return here.size() > before; });
  }

  boost::asio::io_context loop{1};
  net::TestCluster cluster{};
  std::optional<Caller> agent{};
  std::vector<ToHost> heard{};
  std::vector<std::string> ends{};
  std::unique_ptr<net::Listener> listener{};

  std::vector<host::HostFacts> here{};
  int known = 0;
  std::uint64_t offers = 0;
  std::vector<core::ManagerEvent> events{};
  DeviceId told{};
  std::vector<Loads> loads{};
  std::vector<std::uint64_t> later_terms{};
  std::vector<std::string> gone{};
  bool destroy = false;  ///< The host, at the next event.
  std::optional<RemoteHost> host{};
};

TEST_F(RemoteHostTest, LeadsAndOrders) {
  EXPECT_EQ(host->troubles(), std::vector<std::string>{"it has not been linked yet"});
  host->configure(6, "models: []");
  host->carry_out(core::LoadOn{.device = kDevice, .model = kModel});
  run_heard(2);
  EXPECT_EQ(std::get<Lead>(heard[0]).term, 4U);
  EXPECT_EQ(std::get<Configuration>(heard[1]).revision, 6U) << "the order was before its time";
  be_there();
  EXPECT_EQ(here[0].devices.size(), 2U);
  EXPECT_TRUE(host->troubles().empty());
  host->configure(7, "models: [a]");
  host->set_models({{.name = "m", .digest = "d", .ids = {kModel}}});
  host->carry_out(core::LoadOn{.device = kDevice, .model = kModel});
  host->send(kDevice, kLife, core::NoPages{});
  run_heard(6);
  EXPECT_EQ(std::get<Configuration>(heard[2]).text, "models: [a]");
  EXPECT_EQ(std::get<SetModels>(heard[3]).models.at(0).ids, std::vector{kModel});
  EXPECT_EQ(std::get<core::LoadOn>(heard[4]).model, kModel);
  EXPECT_EQ(std::get<core::TellWorker>(heard[5]).epoch, kLife);
  EXPECT_FALSE(host->engine_address(kModel).has_value());
}

TEST_F(RemoteHostTest, HearsOfALaterTermFromAHostThatDoesNotFollow) {
  run_heard(1);
  EXPECT_TRUE(std::get<Lead>(heard[0]).hears_of_terms);
  say(LaterTerm{.term = 9});
  net::run_until(loop, [this] { return !later_terms.empty(); });
  EXPECT_EQ(later_terms, std::vector<std::uint64_t>{9});
  be_there();
  say(LaterTerm{.term = 10});
  net::run_until(loop, [this] { return !gone.empty(); });
  EXPECT_EQ(later_terms.size(), 1U) << "it follows, and cannot say so";
}

TEST_F(RemoteHostTest, PassesOnWhatTheHostSays) {
  be_there();
  say(core::WorkerFound{.device = kDevice, .epoch = kLife, .report = {.version = 2}});
  say(HostKnown{});
  say(Offers{.revision = 6});
  say(core::WorkerSaid{
      .device = kDevice, .epoch = kLife, .report = core::ModelServing{.model = kModel}});
  say(Told{.device = kOther, .model = kModel});
  net::run_until(loop, [this] { return told == kOther; });
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<core::WorkerFound>(events[0]).report.version, 2U);
  EXPECT_EQ(std::get<core::WorkerSaid>(events[1]).device, kDevice);
  EXPECT_EQ(known, 1);
  EXPECT_EQ(offers, 6U);
}

TEST_F(RemoteHostTest, ShowsWhatTheHostSaidLast) {
  be_there();
  HostStatus status{.devices = {{.id = kDevice, .up = true, .epoch = kLife, .steps = 12}},
                    .usage = {.total = 40, .free = 30},
                    .engines = {{.model = kModel, .device = kDevice, .since = steady_now()}},
                    .troubles = {"it is hot"}};
  status.devices[0].usage.total = 5;
  status.devices[0].trouble = "slow";
  make_ages(status, steady_now());
  say(status);
  net::run_until(loop, [this] { return host->host_usage().total == 40; });
  core::DeviceStatus device{.id = kDevice, .name = "h3/cpu0", .up = true, .epoch = kLife};
  device.usage.total = 10;
  device.serving = Duration(8);
  host->describe(device);
  EXPECT_EQ(device.name, "h3/cpu0") << "what the manager knows";
  EXPECT_EQ(device.serving, Duration(8));
  EXPECT_EQ(device.steps, 12U) << "what the host knows";
  EXPECT_EQ(device.trouble, "slow");
  EXPECT_EQ(device.usage.total, 15) << "pages that engines have";
  core::DeviceStatus down{.id = kDevice};
  down.usage.total = 10;
  host->describe(down);
  EXPECT_EQ(down.usage.total, 10) << "what a life lent is over with it";
  EXPECT_EQ(host->engines().at(0).model, kModel);
  EXPECT_EQ(host->troubles(), std::vector<std::string>{"it is hot"});
  agent.reset();
  net::run_until(loop, [this] { return !gone.empty(); });
  EXPECT_EQ(host->host_usage().total, 0);
  EXPECT_TRUE(host->engines().empty());
  EXPECT_NE(host->troubles().at(0).find("the peer has ended the link"), std::string::npos);
}

TEST_F(RemoteHostTest, BeginsAnewWhenTheHostIsGone) {
  host->configure(6, "models: []");
  run_heard(2);
  be_there();
  agent.reset();
  net::run_until(loop, [this] { return !gone.empty(); });
  host->carry_out(core::LoadOn{.device = kDevice, .model = kModel});
  run_heard(4);
  EXPECT_EQ(std::get<Lead>(heard[2]).term, 4U);
  EXPECT_EQ(std::get<Configuration>(heard[3]).revision, 6U);
  be_there();
  EXPECT_EQ(here.size(), 2U);
  EXPECT_EQ(gone.size(), 1U);
  EXPECT_EQ(heard.size(), 4U) << "what was ordered meanwhile is lost, as the host is";
}

TEST_F(RemoteHostTest, AsksAndTellsOfPastLoads) {
  using std::chrono::minutes;
  be_there(/*remembers_loads=*/true);
  EXPECT_TRUE(host->remembers_loads());
  host->tell_loads({.length = minutes(5), .keep = 9, .models = {{"chat", {{5, 1, 2}}}}});
  host->ask_loads({.length = minutes(5), .digest = 3});
  run_heard(3);
  EXPECT_EQ(std::get<Loads>(heard[1]).models.at(0).windows.at(0).peak, 2);
  EXPECT_EQ(std::get<TellLoads>(heard[2]).digest, 3U);
  say(Loads{.length = minutes(5), .models = {{"chat", {{5, 1, 2}}}}, .last = true});
  net::run_until(loop, [this] { return !loads.empty(); });
  EXPECT_EQ(loads[0].models.at(0).model, "chat");
  say(Loads{.length = minutes(5), .last = true});
  net::run_until(loop, [this] { return !ends.empty(); });
  EXPECT_NE(ends[0].find("it says loads that it was not asked for"), std::string::npos) << ends[0];
  net::run_until(loop, [this] { return !gone.empty(); });
  EXPECT_FALSE(host->remembers_loads()) << "while it is not linked";
  heard.clear();
  be_there(/*remembers_loads=*/true);
  host->ask_loads({.length = minutes(5), .model = "chat", .window = 6});
  ends.clear();
  say(Loads{.length = minutes(5), .models = {{"chat", {{5, 1, 2}}}}});
  net::run_until(loop, [this] { return !ends.empty(); });
  EXPECT_NE(ends[0].find("was asked for those from window 6"), std::string::npos) << ends[0];
  EXPECT_EQ(loads.size(), 1U);
}

TEST_F(RemoteHostTest, AHostThatSharesItsCacheHearsWhoElseDoes) {
  const std::vector<host::Holder> holders{{.model = "chat", .hosts = {{.name = "h4"}}}};
  be_there();
  EXPECT_FALSE(host->shares_cache());
  host->set_holders(holders);
  host->leave(true);
  run_heard(2);
  EXPECT_TRUE(std::holds_alternative<Leave>(heard[1])) << "it does not know the other";
  agent.reset();
  net::run_until(loop, [this] { return !gone.empty(); });
  heard.clear();
  be_there(false, /*shares_cache=*/true);
  EXPECT_TRUE(host->shares_cache());
  host->set_holders(holders);
  host->set_holders(holders);
  host->leave(true);
  run_heard(3);
  EXPECT_EQ(std::get<Holders>(heard[1]).models, holders);
  EXPECT_TRUE(std::holds_alternative<Leave>(heard[2])) << "it is told once";
}

TEST_F(RemoteHostTest, SaysNothingOfLoadsToAHostThatDoesNotKnowThem) {
  be_there();
  EXPECT_FALSE(host->remembers_loads());
  host->ask_loads({.length = std::chrono::minutes(5)});
  host->tell_loads({.length = std::chrono::minutes(5), .models = {{"chat", {{5, 1, 2}}}}});
  host->leave(true);
  run_heard(2);
  EXPECT_TRUE(std::get<Leave>(heard[1]).leaving);
}

TEST_F(RemoteHostTest, EndsTheLinkOfAHostThatSaysWhatCannotBe) {
  const DeviceId elsewhere = device_id(HostId(9), 0);
  host::HostFacts other = test_facts();
  other.name = "h9";
  struct Wrong {
    FromHost message;
    bool first = false;
  };
  const std::vector<Wrong> all = {
      {core::WorkerUp{.device = kDevice}, true},
      {HostHere{.host = HostId(9), .facts = test_facts()}, true},
      {HostHere{.host = kHost, .facts = other}, true},
      {HostHere{.host = kHost, .facts = test_facts()}},
      {core::WorkerUp{.device = elsewhere}},
      {core::WorkerSaid{.device = kDevice, .report = core::TokensProduced{}}}};
  std::size_t followed = 0;
  for (const Wrong& wrong : all) {
    heard.clear();
    run_heard(1);
    if (!wrong.first) {
      be_there();
      ++followed;
    }
    ends.clear();
    say(wrong.message);
    net::run_until(loop, [this] { return !ends.empty(); });
    EXPECT_NE(ends[0].find("the peer has ended the link: "), std::string::npos) << ends[0];
    net::run_until(loop, [&] { return gone.size() == followed; });
  }
  EXPECT_TRUE(events.empty());
}

TEST_F(RemoteHostTest, MayBeDestroyedByItsHandlers) {
  be_there();
  destroy = true;
  say(core::WorkerUp{.device = kDevice, .epoch = kLife});
  say(core::WorkerDown{.device = kDevice, .epoch = kLife});
  net::run_until(loop, [this] { return !ends.empty(); });
  EXPECT_EQ(events.size(), 1U);
  EXPECT_TRUE(gone.empty()) << "nobody is told any more";
}

TEST_F(RemoteHostTest, IsListedAsItStands) {
  core::HostEntry entry = host->entry();
  EXPECT_EQ(entry.id, kHost);
  EXPECT_EQ(entry.name, "h3");
  EXPECT_EQ(entry.address, "127.0.0.1:" + std::to_string(listener->port()));
  EXPECT_EQ(entry.presence, core::HostPresence::kAway);
  EXPECT_EQ(entry.trouble, "it has not been linked yet");
  be_there();
  entry = host->entry();
  EXPECT_EQ(entry.presence, core::HostPresence::kHere);
  EXPECT_NE(entry.since, Instant{});
  EXPECT_EQ(entry.trouble, "");
  host->leave(true);
  run_heard(2);
  EXPECT_TRUE(std::get<Leave>(heard[1]).leaving);
  EXPECT_EQ(host->entry().presence, core::HostPresence::kHere) << "it has not said so";
  say(core::HostLeaving{.host = kHost});
  net::run_until(loop, [this] { return !events.empty(); });
  EXPECT_EQ(std::get<core::HostLeaving>(events[0]).host, kHost);
  EXPECT_EQ(host->entry().presence, core::HostPresence::kLeaving);
  agent->end("enough");
  net::run_until(loop, [this] { return !gone.empty(); });
  EXPECT_EQ(host->entry().presence, core::HostPresence::kAway);
}

}  // namespace
}  // namespace heddle::remote
