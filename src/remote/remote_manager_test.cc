#include "remote/remote_manager.h"

#include <chrono>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "remote/test_callee.h"

namespace heddle::remote {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// Long for a loop on this machine.
constexpr Duration kPatience = std::chrono::milliseconds(300);

/// Notes what its manager wants.
class NotingFront final : public serving::FrontPort {
 public:
  void set_models(std::map<ModelId, core::ServedModel> wanted) override {
    models = std::move(wanted);
  }
  void carry_out(const core::Dispatch& command) override { dispatched.push_back(command.request); }
  void carry_out(const core::Hold& command) override { held.push_back(command.request); }
  void carry_out(const core::FailRequest& command) override {
    failed.push_back(command.error.message);
  }
  void tell_loading(ModelId model, std::uint64_t loaded_bytes) override {
    loading.emplace_back(model, loaded_bytes);
  }

  std::map<ModelId, core::ServedModel> models{};
  std::vector<RequestId> dispatched{};
  std::vector<RequestId> held{};
  std::vector<std::string> failed{};
  std::vector<std::pair<ModelId, std::uint64_t>> loading{};
};

/// A gateway and the managers that it may link with.
class RemoteManagerTest : public ::testing::Test {
 protected:
  using Leader = TestCallee<GatewayToManager>;

  RemoteManagerTest() {
    manager.emplace(
        loop.get_executor(),
        kFront,
        net::self_of(cluster.issue(net::Role::kGateway, "g1")),
        RemoteManagerHandlers{
            .on_configuration =
                [this](std::uint64_t revision, const std::string& text) {
                  configured = std::to_string(revision) + " " + text;
                },
            .on_served = [this](const Served& news) { on_served(news); },
            .on_quotas_used =
                [this](const std::vector<core::QuotaUse>& uses) { used_elsewhere = uses; },
            .on_down =
                [this](const Error& why) {
                  downs.push_back(why.message);
                  on_down();
                }},
        test_connector(),
        kPatience);
    manager->set_front(front, [this] { return unfinished; });
  }

  std::unique_ptr<Leader> leader(const std::string& name) {
    return std::make_unique<Leader>(
        loop, net::self_of(cluster.issue(net::Role::kManager, name)), decode_gateway_to_manager);
  }
  /// Links with a manager, which has heard what requests there are, and leads.
  std::unique_ptr<Leader> linked(const std::string& name = "m1") {
    auto made = leader(name);
    manager->connect(made->address(), name);
    lead(*made);
    return made;
  }
  void lead(Leader& leader) {
    leader.next<core::FrontState>();
    leader.say(ManagerToGateway(Status{}));
    net::run_until(loop, [this] { return manager->is_linked(); });
  }
  std::function<void(Result<void>)> note() {
    return [this](const Result<void>& done) {
      answers.push_back(done ? "done" : done.error().message);
      if (!done) {
        code = done.error().code;
      }
    };
  }
  void run_answered(std::size_t count) {
    net::run_until(loop, [&] { return answers.size() >= count; });
  }

  net::TestCluster cluster{};
  boost::asio::io_context loop{1};
  NotingFront front{};
  std::vector<core::Unfinished> unfinished{};
  std::string configured{};
  std::vector<std::string> downs{};
  std::function<void(const Served&)> on_served = [this](const Served& news) { served = news; };
  std::function<void()> on_down = [] {};
  Served served{};
  std::vector<core::QuotaUse> used_elsewhere{};
  std::vector<std::string> answers{};
  Code code = Code::kCancelled;
  std::optional<RemoteManager> manager{};
};

TEST_F(RemoteManagerTest, IsToldOfAllRequestsFirstAndThenOfNews) {
  unfinished = {{.request = {.request = request(1)}, .age = seconds(3)}};
  manager->tell(core::RequestArrived{.request = request(1)});
  const auto made = leader("m1");
  manager->connect(made->address(), "m1");
  made->run_linked(1);
  net::run_until(loop, [&] { return !made->heard.empty(); });
  const auto& state = std::get<core::FrontState>(made->heard.at(0));
  EXPECT_EQ(state.front, kFront);
  ASSERT_EQ(state.requests.size(), 1U);
  EXPECT_EQ(state.requests[0].age, seconds(3));

  manager->tell(core::RequestCancelled{.request = request(1)});
  EXPECT_EQ(made->next<core::RequestCancelled>().request, request(1));
  manager->tell(core::WorkerSaid{.report = core::RequestReturned{.request = request(2)}});
  made->next<core::WorkerSaid>();
  manager->tell(core::PlaceLost{.device = kDevice, .requests = {request(3)}});
  EXPECT_EQ(made->next<core::PlaceLost>().requests, std::vector{request(3)});
}

TEST_F(RemoteManagerTest, TellsTheFrontWhatItWants) {
  const auto made = linked();
  made->say(ManagerToGateway(Configuration{.revision = 4, .text = "models:"}));
  made->say(ManagerToGateway(Served{
      .models = {{kModel, {.name = "small", .served = {.image_bytes = 700}, .tokens_max = 500}}}}));
  made->say(ManagerToGateway(core::Hold{.request = request(1)}));
  made->say(ManagerToGateway(Loading{.model = kModel, .bytes = 350}));
  made->say(ManagerToGateway(core::Dispatch{.request = request(2), .device = kDevice}));
  made->say(ManagerToGateway(
      core::FailRequest{.request = request(3), .error = {Code::kUnavailable, "no"}}));
  net::run_until(loop, [this] { return !front.failed.empty(); });
  EXPECT_EQ(configured, "4 models:");
  EXPECT_EQ(served.models.at(kModel).name, "small");
  EXPECT_EQ(front.models.at(kModel).image_bytes, 700U);
  EXPECT_EQ(manager->tokens_max(kModel), 500);
  EXPECT_EQ(manager->tokens_max(ModelId(99)), 0);
  EXPECT_THAT(front.held, ElementsAre(request(1)));
  EXPECT_THAT(front.loading, ElementsAre(std::pair(kModel, std::uint64_t{350})));
  EXPECT_THAT(front.dispatched, ElementsAre(request(2)));
  EXPECT_THAT(front.failed, ElementsAre("no"));
}

TEST_F(RemoteManagerTest, HearsNothingOfWhatHappensWhileTheLinkIsDown) {
  const auto made = linked();
  made->cut();
  net::run_until(loop, [this] { return downs.size() == 1; });
  manager->tell(core::RequestArrived{.request = request(1)});
  unfinished = {{.request = {.request = request(1)}}};
  EXPECT_EQ(made->next<core::FrontState>().requests.size(), 1U);
  manager->tell(core::RequestFinished{.request = request(1)});
  net::run_until(loop, [&] { return made->last<core::RequestFinished>() != nullptr; });
  EXPECT_EQ(made->last<core::RequestArrived>(), nullptr);
}

TEST_F(RemoteManagerTest, EndsTheLinkOfAManagerThatMakesNoSense) {
  const auto made = linked();
  const RequestId other = request(1, FrontId(9));
  for (const ManagerToGateway& odd :
       {ManagerToGateway(core::Dispatch{.request = other}),
        ManagerToGateway(core::Hold{.request = other}),
        ManagerToGateway(core::FailRequest{.request = other, .error = {Code::kCorrupt, "no"}})}) {
    made->say(odd);
    EXPECT_THAT(made->end(), HasSubstr("is of front 9, and this is front 2"));
    made->next<core::FrontState>();
  }
  made->say(ManagerToGateway(core::AdminDone{.ticket = core::TicketId(7)}));
  EXPECT_THAT(made->end(), HasSubstr("it answers ticket 7, which nobody waits for"));
  made->next<core::FrontState>();
  made->say_bytes("nonsense");
  EXPECT_THAT(made->end(), HasSubstr("ended"));
  made->next<core::FrontState>();
  EXPECT_TRUE(front.dispatched.empty());
  EXPECT_TRUE(front.held.empty());
  EXPECT_TRUE(front.failed.empty());
}

TEST_F(RemoteManagerTest, LoadsAndUnloads) {
  const auto made = linked();
  manager->load(kModel, note());
  const core::AdminLoad load = made->next<core::AdminLoad>();
  EXPECT_EQ(load.model, kModel);
  manager->unload(kModel, core::EvictionReason::kIdle, note());
  const core::AdminUnload unload = made->next<core::AdminUnload>();
  EXPECT_EQ(unload.why, core::EvictionReason::kIdle);
  EXPECT_NE(load.ticket, unload.ticket);
  made->say(ManagerToGateway(
      core::AdminDone{.ticket = unload.ticket, .error = Error{Code::kNotFound, "no such model"}}));
  made->say(ManagerToGateway(core::AdminDone{.ticket = load.ticket}));
  run_answered(2);
  EXPECT_THAT(answers, ElementsAre("no such model", "done"));
}

TEST_F(RemoteManagerTest, SharesQuotasWithAManagerThatKnowsOfThem) {
  const std::vector<core::QuotaUse> used{{.key = "5a", .tokens = 3, .tokens_per_minute = 9}};
  const auto older = linked("m1");
  older->say(ManagerToGateway(Served{.models = {{kModel, {.name = "small"}}}}));
  net::run_until(loop, [this] { return !served.models.empty(); });
  EXPECT_FALSE(manager->shares_quotas());
  const auto made = linked("m2");
  made->say(ManagerToGateway(Served{.shares_quotas = true}));
  EXPECT_TRUE(made->next<QuotasUsed>().uses.empty()) << "it says that it takes them";
  EXPECT_TRUE(manager->shares_quotas());
  manager->tell_quotas_used(used);
  EXPECT_EQ(made->next<QuotasUsed>().uses, used);
  made->say(ManagerToGateway(QuotasUsed{.uses = used}));
  net::run_until(loop, [this] { return !used_elsewhere.empty(); });
  EXPECT_EQ(used_elsewhere, used);
  manager->connect(older->address(), "m1");
  EXPECT_FALSE(manager->shares_quotas()) << "until the next manager says that it does";
}

TEST_F(RemoteManagerTest, RefusesWhatIsAskedWhereNobodyLeadsInTime) {
  manager->load(kModel, note());
  EXPECT_TRUE(answers.empty()) << "not from within the call";
  run_answered(1);
  EXPECT_THAT(answers[0], HasSubstr("no manager has been reached for"));
  EXPECT_EQ(code, Code::kUnavailable);

  const Instant asked = steady_now();
  manager->unload(kModel, core::EvictionReason::kIdle, note());
  EXPECT_EQ(answers.size(), 1U) << "not from within the call";
  run_answered(2);
  EXPECT_LT(steady_now() - asked, kPatience) << "it had its time";
}

TEST_F(RemoteManagerTest, AsksTheNextManagerWhatTheLastDidNotAnswer) {
  manager->load(kModel, note());  // While none was ever there.
  auto first = linked();
  const auto load = first->next<core::AdminLoad>();
  manager->leave(HostId(1), true, note());
  first->next<DrainHost>();
  first->leave();
  net::run_until(loop, [this] { return !manager->is_linked(); });
  manager->apply("models:", true, note());

  const auto second = linked("m2");
  net::run_until(loop, [&] { return second->last<Apply>() != nullptr; });  // All come at once.
  EXPECT_EQ(second->last<core::AdminLoad>()->ticket, load.ticket);
  EXPECT_EQ(second->last<DrainHost>()->host, HostId(1));
  second->say(ManagerToGateway(core::AdminDone{.ticket = second->last<DrainHost>()->ticket}));
  second->say(ManagerToGateway(core::AdminDone{.ticket = second->last<Apply>()->ticket,
                                               .error = Error{Code::kInvalidArgument, "no path"}}));
  second->say(ManagerToGateway(core::AdminDone{.ticket = load.ticket}));
  run_answered(3);
  EXPECT_THAT(answers, ElementsAre("done", "no path", "done"));
}

TEST_F(RemoteManagerTest, ManagersThatStandByAreAskedNothing) {
  manager->load(kModel, note());
  const auto standby = leader("m1");
  manager->connect(standby->address(), "m1");
  standby->next<core::FrontState>();
  standby->leave();
  net::run_until(loop, [this] { return !downs.empty(); });
  EXPECT_EQ(standby->last<core::AdminLoad>(), nullptr);
  EXPECT_TRUE(answers.empty()) << "its time is not over";
  linked("m2")->next<core::AdminLoad>();
}

TEST_F(RemoteManagerTest, ShowsWhatItWasToldLast) {
  EXPECT_THAT(manager->troubles(), ElementsAre(HasSubstr("none was sought")));
  EXPECT_FALSE(manager->is_linked());
  EXPECT_TRUE(manager->models().empty());
  const auto made = linked();
  EXPECT_TRUE(manager->is_linked());
  EXPECT_TRUE(manager->troubles().empty());
  made->say(ManagerToGateway(Status{.models = {{.name = "small", .last_used = Instant{seconds(5)}}},
                                    .devices = {{.id = kDevice}},
                                    .usage = {.total = 9},
                                    .engines = {{}},
                                    .decisions = {{}},
                                    .troubles = {"too hot"}}));
  net::run_until(loop, [this] { return !manager->models().empty(); });
  EXPECT_LE(manager->models().at(0).last_used, steady_now() - seconds(5));
  EXPECT_EQ(manager->devices().at(0).id, kDevice);
  EXPECT_EQ(manager->host_usage().total, 9);
  EXPECT_EQ(manager->engines().size(), 1U);
  EXPECT_EQ(manager->decisions().size(), 1U);
  EXPECT_THAT(manager->troubles(), ElementsAre("too hot"));

  made->leave();
  net::run_until(loop, [this] { return downs.size() >= 2; });
  EXPECT_EQ(manager->models().size(), 1U);
  EXPECT_FALSE(manager->is_linked());
  EXPECT_THAT(manager->troubles(),
              ElementsAre(HasSubstr("no manager has been reached for"), "too hot"));
}

TEST_F(RemoteManagerTest, LinksWithAnotherManagerWhenItIsToldTo) {
  const auto first = linked();
  const auto second = leader("m2");
  manager->load(kModel, note());
  manager->connect(second->address(), "m2");
  EXPECT_THAT(manager->troubles(), ElementsAre(HasSubstr("it links with manager m2 at")));
  lead(*second);
  second->next<core::AdminLoad>();
  EXPECT_TRUE(answers.empty()) << "nobody has answered yet";
  net::run_until(loop, [&] { return first->ends.size() == 1; });
  EXPECT_TRUE(downs.empty());
  EXPECT_TRUE(manager->troubles().empty());
}

TEST_F(RemoteManagerTest, LinksWithTheManagerOfThatNameOnly) {
  const auto made = leader("m2");
  manager->connect(made->address(), "m1");
  net::run_until(loop, [this] { return !downs.empty(); });
  EXPECT_THAT(downs[0], HasSubstr("m2"));
  EXPECT_TRUE(made->heard.empty());
}

TEST_F(RemoteManagerTest, MayBeToldToLinkElsewhereWheneverALinkHasFailed) {
  const auto first = leader("m1");
  const net::Address nobody = first->address();
  first->leave();
  const auto second = leader("m2");
  on_down = [&, turn = 0]() mutable {
    ++turn % 2 == 1 ? manager->connect(second->address(), "m1")  // Who is another.
                    : manager->connect(turn < 6 ? nobody : second->address(), "m2");
  };
  manager->connect(nobody, "m1");
  lead(*second);
  EXPECT_EQ(downs.size(), 6U);
  EXPECT_TRUE(manager->troubles().empty());
}

TEST_F(RemoteManagerTest, MayBeDestroyedByWhomItTells) {
  const auto made = linked();
  on_served = [this](const Served& /*news*/) { manager.reset(); };
  made->say(ManagerToGateway(Served{}));
  net::run_until(loop, [this] { return !manager.has_value(); });
  EXPECT_THAT(made->end(), HasSubstr("ended"));
}

TEST_F(RemoteManagerTest, AppliesConfigurations) {
  const auto made = linked();
  manager->apply("models:", true, note());
  const auto apply = made->next<Apply>();
  EXPECT_EQ(apply.text, "models:");
  EXPECT_TRUE(apply.dry_run);
  made->say(ManagerToGateway(core::AdminDone{.ticket = apply.ticket}));
  run_answered(1);
  EXPECT_THAT(answers, ElementsAre("done"));
}

TEST_F(RemoteManagerTest, HasHostsLeave) {
  const auto made = linked();
  manager->leave(HostId(1), false, note());
  const auto drain = made->next<DrainHost>();
  EXPECT_EQ(drain.host, HostId(1));
  EXPECT_FALSE(drain.leaving);
  made->say(ManagerToGateway(core::AdminDone{
      .ticket = drain.ticket, .error = Error{Code::kFailedPrecondition, "host h1 is away"}}));
  run_answered(1);
  EXPECT_THAT(answers, ElementsAre("host h1 is away"));
}

}  // namespace
}  // namespace heddle::remote
