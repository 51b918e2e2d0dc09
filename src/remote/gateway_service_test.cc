#include "remote/gateway_service.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "remote/messages.h"
#include "remote/test_host.h"

namespace heddle::remote {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr FrontId kStranger{9};

/// A manager of one model that notes what it is told.
class Leader final : public LeaderPort, public core::ServingStatus {
 public:
  using Done = std::function<void(Result<void>)>;

  void tell(const serving::RequestNews& news) override { told.push_back(news); }
  [[nodiscard]] std::int64_t tokens_max(ModelId /*model*/) const override { return tokens; }
  void add_front(FrontId id, serving::FrontPort& port) override {
    fronts[id] = &port;
    port.set_models({{kModel, {.image_bytes = 700}}});
  }
  void adopt(core::FrontState front) override { adopted.push_back(std::move(front)); }
  void remove_front(FrontId id) override {
    fronts.erase(id);
    removed.push_back(id);
  }
  void load(ModelId model, Done done) override {
    EXPECT_EQ(model, kModel);
    loads.push_back(std::move(done));
  }
  void unload(ModelId model, core::EvictionReason why, Done done) override {
    EXPECT_EQ(model, kModel);
    EXPECT_EQ(why, core::EvictionReason::kIdle);
    unloads.push_back(std::move(done));
  }
  [[nodiscard]] std::string digest(ModelId /*model*/) const override { return "5a"; }
  [[nodiscard]] std::vector<core::HostEntry> hosts() const override {
    return {{.id = HostId(4), .name = "h4", .since = used}};
  }
  void apply(std::string text, bool dry_run, Done done) override {
    applied = {std::move(text), dry_run};
    done(Error{Code::kInvalidArgument, "models.a: no path"});
  }
  void leave(HostId host, bool leaving, Done done) override {
    left.emplace_back(host, leaving);
    done({});
  }

  [[nodiscard]] std::vector<core::ModelStatus> models() const override {
    return {{.id = kModel, .name = "small", .last_used = used}};
  }
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override {
    return {{.id = kDevice, .name = "cpu0"}};
  }
  [[nodiscard]] ledger::PoolUsage host_usage() const override { return {.total = 9, .free = 8}; }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override { return {{}}; }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override { return {{}}; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return {"too hot"}; }

  template <class T>
  [[nodiscard]] const T* last() const {
    return told.empty() ? nullptr : std::get_if<T>(&told.back());
  }

  std::int64_t tokens = 500;
  Instant used{};
  std::map<FrontId, serving::FrontPort*> fronts{};
  std::vector<core::FrontState> adopted{};
  std::vector<FrontId> removed{};
  std::vector<serving::RequestNews> told{};
  std::vector<Done> loads{};
  std::vector<Done> unloads{};
  std::vector<std::pair<HostId, bool>> left{};
  std::pair<std::string, bool> applied{};
};

class GatewayServiceTest : public ::testing::Test {
 protected:
  using Gateway = TestCaller<ManagerToGateway>;

  void serve(GatewayServiceOptions options = {.grace = hours(1)}) {
    options.status = {.most = milliseconds(5), .least = milliseconds(1)};
    service.emplace(loop.get_executor(), leader, leader, options);
    listener = test_listener(
        loop,
        net::self_of(cluster.issue(net::Role::kManager, "m1")),
        {net::Role::kGateway, net::Role::kAgent},
        [this](auto link, const auto& peer) { service->accept(std::move(link), peer, front); });
  }
  std::unique_ptr<Gateway> link(const std::string& name = "g1",
                                net::Role role = net::Role::kGateway) {
    if (!selves.contains(name)) {
      selves[name] = net::self_of(cluster.issue(role, name));
    }
    return std::make_unique<Gateway>(
        loop, listener->port(), selves.at(name), decode_manager_to_gateway);
  }
  static core::FrontState state(std::vector<core::Unfinished> requests = {}) {
    return {.front = kFront, .requests = std::move(requests)};
  }
  /// One that has said what requests it has: none.
  std::unique_ptr<Gateway> gateway(const std::string& name = "g1") {
    auto made = link(name);
    const std::size_t before = leader.adopted.size();
    made->say(GatewayToManager(state()));
    net::run_until(loop, [&] { return leader.adopted.size() > before; });
    return made;
  }
  void run_told(std::size_t news) {
    net::run_until(loop, [&] { return leader.told.size() >= news; });
  }

  net::TestCluster cluster{};
  std::map<std::string, net::Self> selves{};
  boost::asio::io_context loop{1};
  Leader leader{};
  FrontId front = kFront;  ///< Of whoever links.
  std::unique_ptr<net::Listener> listener{};
  std::optional<GatewayService> service{};
};

TEST_F(GatewayServiceTest, HearsOfRequestsAndSaysWhatBecomesOfThem) {
  serve();
  service->configure(4, "models:");
  const auto made = link();
  made->say(GatewayToManager(state({{.request = {.request = request(1)}, .age = seconds(3)}})));
  net::run_until(loop, [&] { return !leader.adopted.empty(); });
  EXPECT_EQ(leader.adopted[0].front, kFront);
  ASSERT_EQ(leader.adopted[0].requests.size(), 1U);
  EXPECT_EQ(leader.adopted[0].requests[0].age, seconds(3));

  made->say(GatewayToManager(core::RequestArrived{.request = request(2), .model = kModel}));
  made->say(GatewayToManager(core::RequestFinished{.request = request(1)}));
  made->say(GatewayToManager(
      core::WorkerSaid{.report = core::RequestReturned{.request = request(2), .recalled = true}}));
  run_told(3);
  EXPECT_TRUE(std::holds_alternative<core::RequestArrived>(leader.told[0]));
  EXPECT_TRUE(std::holds_alternative<core::RequestFinished>(leader.told[1]));
  EXPECT_TRUE(std::holds_alternative<core::WorkerSaid>(leader.told[2]));

  serving::FrontPort& port = *leader.fronts.at(kFront);
  port.carry_out(core::Hold{.request = request(2)});
  port.tell_loading(kModel, 350);
  port.carry_out(core::Dispatch{.request = request(2), .device = kDevice, .tokens = 40});
  port.carry_out(core::FailRequest{.request = request(2), .error = {Code::kUnavailable, "no"}});
  net::run_until(loop, [&] { return made->last<core::FailRequest>() != nullptr; });
  ASSERT_NE(made->last<Configuration>(), nullptr);
  EXPECT_EQ(made->last<Configuration>()->text, "models:");
  EXPECT_EQ(made->last<core::Hold>()->request, request(2));
  EXPECT_EQ(made->last<Loading>()->bytes, 350U);
  EXPECT_EQ(made->last<core::Dispatch>()->tokens, 40);
  EXPECT_EQ(made->last<core::FailRequest>()->error.message, "no");
  service->configure(5, "models: []");
  EXPECT_EQ(made->next<Configuration>().revision, 5U);
}

TEST_F(GatewayServiceTest, TellsOfTheModelsAndHowMuchFitsThem) {
  serve();
  const auto made = gateway();
  net::run_until(loop, [&] { return made->last<Served>() != nullptr; });
  const ServedFacts facts = made->last<Served>()->models.at(kModel);
  EXPECT_EQ(facts.name, "small");
  EXPECT_EQ(facts.digest, "5a");
  EXPECT_EQ(facts.served.image_bytes, 700U);
  EXPECT_EQ(facts.tokens_max, 500);

  leader.tokens = 600;  // Of which nobody tells: devices have come.
  EXPECT_EQ(made->next<Served>().models.at(kModel).tokens_max, 600);

  leader.fronts.at(kFront)->set_models(
      {{kModel, {.failure = Error{Code::kCorrupt, "no such file"}}}});
  leader.tokens = 0;  // The manager says the models before it knows what fits them.
  const Served changed = made->next<Served>();
  EXPECT_EQ(changed.models.at(kModel).served.failure->message, "no such file");
  EXPECT_EQ(changed.models.at(kModel).tokens_max, 0);
}

TEST_F(GatewayServiceTest, TellsOfNoModelsWhileItIsNotKnownWhatThereIs) {
  serve();
  service->hold_models(true);
  const auto made = gateway();
  service->configure(5, "models: []");
  net::run_until(loop, [&] { return made->last<Configuration>() != nullptr; });
  EXPECT_EQ(made->last<Served>(), nullptr);
  service->hold_models(false);
  EXPECT_EQ(made->next<Served>().models.at(kModel).tokens_max, 500);
}

TEST_F(GatewayServiceTest, TellsWhatThereIsToSeeInAges) {
  serve();
  leader.used = steady_now() - seconds(10);
  const auto made = gateway();
  const Status status = made->next<Status>();
  ASSERT_EQ(status.models.size(), 1U);
  EXPECT_GE(status.models[0].last_used.time_since_epoch(), seconds(10));
  EXPECT_LT(status.models[0].last_used.time_since_epoch(), hours(1)) << "it is an age";
  EXPECT_EQ(status.devices.at(0).name, "cpu0");
  EXPECT_EQ(status.usage.total, 9);
  EXPECT_EQ(status.engines.size(), 1U);
  EXPECT_EQ(status.decisions.size(), 1U);
  EXPECT_EQ(status.troubles, std::vector<std::string>{"too hot"});
}

TEST_F(GatewayServiceTest, AnswersLoadsAndUnloads) {
  serve();
  const auto made = gateway();
  net::run_until(loop, [&] { return made->last<Served>() != nullptr; });
  made->say(GatewayToManager(core::AdminLoad{.ticket = core::TicketId(7), .model = kModel}));
  made->say(GatewayToManager(core::AdminUnload{
      .ticket = core::TicketId(8), .model = kModel, .why = core::EvictionReason::kIdle}));
  net::run_until(loop, [&] { return !leader.unloads.empty(); });
  leader.loads.at(0)({});
  core::AdminDone answer = made->next<core::AdminDone>();
  EXPECT_EQ(answer.ticket, core::TicketId(7));
  EXPECT_FALSE(answer.error.has_value());
  leader.unloads.at(0)(Error{.code = Code::kCancelled, .message = "it was asked for again"});
  answer = made->next<core::AdminDone>();
  EXPECT_EQ(answer.ticket, core::TicketId(8));
  EXPECT_EQ(answer.error->message, "it was asked for again");

  made->say(GatewayToManager(core::AdminLoad{.ticket = core::TicketId(9), .model = ModelId(99)}));
  answer = made->next<core::AdminDone>();
  EXPECT_EQ(answer.ticket, core::TicketId(9));
  EXPECT_EQ(answer.error->code, Code::kNotFound);
}

TEST_F(GatewayServiceTest, PassesWhatKeysHaveUsedOnToTheOtherGatewaysThatTakeIt) {
  serve();
  const auto first = gateway();
  net::run_until(loop, [&] { return first->last<Served>() != nullptr; });
  EXPECT_TRUE(first->last<Served>()->shares_quotas);
  first->say(GatewayToManager(QuotasUsed{}));
  front = FrontId(kFront.value() + 1);
  const auto second = link("g2");
  second->say(GatewayToManager(core::FrontState{.front = front}));
  net::run_until(loop, [&] { return second->last<Served>() != nullptr; });
  const QuotasUsed used{
      .uses = {{.key = "5a", .requests = 1, .requests_per_minute = 2, .tokens_per_minute = 9}}};
  first->say(GatewayToManager(used));  // The second has not said that it takes them.
  first->say(GatewayToManager(core::AdminLoad{.ticket = core::TicketId(7), .model = kModel}));
  net::run_until(loop, [&] { return leader.loads.size() == 1; });
  second->say(GatewayToManager(used));
  EXPECT_EQ(first->next<QuotasUsed>().uses, used.uses);
  EXPECT_EQ(second->last<QuotasUsed>(), nullptr);
  first->say(GatewayToManager(used));
  EXPECT_EQ(second->next<QuotasUsed>().uses, used.uses);
}

TEST_F(GatewayServiceTest, AnswersNobodyOverAnotherLink) {
  serve();
  auto made = gateway();
  made->say(GatewayToManager(core::AdminLoad{.ticket = core::TicketId(7), .model = kModel}));
  net::run_until(loop, [&] { return leader.loads.size() == 1; });
  made.reset();
  made = gateway();
  made->say(GatewayToManager(core::AdminLoad{.ticket = core::TicketId(7), .model = kModel}));
  net::run_until(loop, [&] { return leader.loads.size() == 2; });
  leader.loads[0](Error{.code = Code::kUnavailable, .message = "of the process before"});
  leader.loads[1]({});
  EXPECT_FALSE(made->next<core::AdminDone>().error.has_value());
  EXPECT_EQ(std::ranges::count_if(made->heard,
                                  [](const ManagerToGateway& message) {
                                    return std::holds_alternative<core::AdminDone>(message);
                                  }),
            1);
  leader.loads.push_back(leader.loads[1]);
  service.reset();
  leader.loads[2]({});  // Nobody is there.
}

TEST_F(GatewayServiceTest, HearsNothingBeforeItKnowsTheRequests) {
  serve();
  const auto made = link();
  made->say(GatewayToManager(core::RequestArrived{.request = request(1)}));
  EXPECT_THAT(made->end(), HasSubstr("it does not say FrontState once, and first"));
  EXPECT_TRUE(leader.told.empty());
  EXPECT_TRUE(leader.fronts.empty());
  EXPECT_TRUE(made->heard.empty());
}

TEST_F(GatewayServiceTest, EndsTheLinkOfAGatewayThatMakesNoSense) {
  serve();
  const auto made = gateway();
  made->say(GatewayToManager(core::RequestArrived{.request = request(1, kStranger)}));
  EXPECT_THAT(made->end(), HasSubstr("is of front 9, and this gateway has front 2"));
  net::run_until(loop, [&] { return made->ups == 2; });
  made->say(GatewayToManager(core::FrontState{.front = kStranger}));
  EXPECT_THAT(made->end(), HasSubstr("it tells of front 9, and has front 2"));
  net::run_until(loop, [&] { return made->ups == 3; });
  made->say(GatewayToManager(state()));
  made->say(GatewayToManager(state()));
  EXPECT_THAT(made->end(), HasSubstr("it does not say FrontState once, and first"));
  net::run_until(loop, [&] { return made->ups == 4; });
  made->say(ToHost(Lead{}));
  EXPECT_THAT(made->end(), HasSubstr("message"));
  EXPECT_EQ(leader.adopted.size(), 2U);
  EXPECT_TRUE(leader.told.empty());
}

TEST_F(GatewayServiceTest, KeepsWhatRunsWhenAGatewayComesAgainInTime) {
  serve();
  auto made = gateway();
  serving::FrontPort* const port = leader.fronts.at(kFront);
  made.reset();
  port->carry_out(core::Dispatch{.request = request(1)});
  made = link();
  port->carry_out(core::Dispatch{.request = request(1)});
  made->say(GatewayToManager(state({{.request = {.request = request(1)}}})));
  net::run_until(loop, [&] { return leader.adopted.size() == 2; });
  EXPECT_EQ(leader.adopted[1].requests.size(), 1U);
  EXPECT_EQ(leader.fronts.at(kFront), port);
  EXPECT_TRUE(leader.removed.empty());
  net::run_until(loop, [&] { return made->last<Served>() != nullptr; });
  EXPECT_EQ(made->last<core::Dispatch>(), nullptr) << "it told of all again";
  port->carry_out(core::Dispatch{.request = request(1)});
  EXPECT_EQ(made->next<core::Dispatch>().request, request(1));
}

TEST_F(GatewayServiceTest, GivesUpTheRequestsOfAGatewayThatStaysAway) {
  serve({.grace = milliseconds(1)});
  auto made = gateway();
  made.reset();
  net::run_until(loop, [&] { return !leader.removed.empty(); });
  EXPECT_EQ(leader.removed, std::vector<FrontId>{kFront});
  made = gateway();
  EXPECT_TRUE(leader.fronts.contains(kFront)) << "it is new";
}

TEST_F(GatewayServiceTest, HasTheLastLinkOfAGateway) {
  serve();
  const auto first = gateway();
  const auto second = gateway();
  EXPECT_THAT(first->end(), HasSubstr("replaces this one"));
  EXPECT_EQ(leader.fronts.size(), 1U);
  EXPECT_TRUE(leader.removed.empty());
}

TEST_F(GatewayServiceTest, TakesNobodyElse) {
  serve();
  const auto agent = link("h1", net::Role::kAgent);
  EXPECT_THAT(agent->end(), HasSubstr("gateways link here"));
  agent->leave();
  const auto made = gateway();
  const auto other = link("g2");
  EXPECT_THAT(other->end(), HasSubstr("front 2 is that of gateway \"g1\""));
  other->leave();
  front = kStranger;
  const auto second = link("g2");
  second->say(GatewayToManager(core::FrontState{.front = kStranger}));
  net::run_until(loop, [&] { return leader.fronts.size() == 2; });
  second->say(GatewayToManager(core::RequestArrived{.request = request(1, kStranger)}));
  run_told(1);
}

TEST_F(GatewayServiceTest, EndsTheLinkOfAGatewayThatTakesTooLittle) {
  serve({.queued_most = 5000, .grace = hours(1)});
  const auto made = gateway();
  serving::FrontPort& port = *leader.fronts.at(kFront);
  port.carry_out(core::FailRequest{.request = request(1),
                                   .error = {Code::kUnavailable, std::string(5001, 'x')}});
  EXPECT_THAT(made->end(), HasSubstr("it takes too little of what it is sent"));
}

TEST_F(GatewayServiceTest, LeavesNoFrontBehind) {
  serve();
  const auto made = gateway();
  listener.reset();
  service.reset();
  EXPECT_EQ(leader.removed, std::vector<FrontId>{kFront});
  EXPECT_THAT(made->end(), HasSubstr("it has no more use for the link"));
}

TEST_F(GatewayServiceTest, TellsOfHostsAndHasThemLeave) {
  serve();
  const auto made = gateway();
  const Status status = made->next<Status>();
  ASSERT_EQ(status.hosts.size(), 1U);
  EXPECT_EQ(status.hosts[0].name, "h4");
  made->say(GatewayToManager(DrainHost{.host = HostId(4), .ticket = core::TicketId(3)}));
  EXPECT_EQ(made->next<core::AdminDone>().ticket, core::TicketId(3));
  ASSERT_EQ(leader.left.size(), 1U);
  EXPECT_EQ(leader.left[0], std::pair(HostId(4), true));
}

TEST_F(GatewayServiceTest, HasConfigurationsApplied) {
  serve();
  const auto made = gateway();
  made->say(
      GatewayToManager(Apply{.ticket = core::TicketId(5), .text = "models:", .dry_run = true}));
  const auto done = made->next<core::AdminDone>();
  EXPECT_EQ(leader.applied, std::pair(std::string("models:"), true));
  EXPECT_EQ(done.ticket, core::TicketId(5));
  EXPECT_EQ(done.error->message, "models.a: no path");
}

}  // namespace
}  // namespace heddle::remote
