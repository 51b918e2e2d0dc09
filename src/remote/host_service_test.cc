#include "remote/host_service.h"

#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "history/load_book.h"
#include "remote/load_pieces.h"
#include "remote/test_folder.h"
#include "remote/test_host.h"

namespace heddle::remote {
namespace {

using std::chrono::milliseconds;

/// An agent with two workers of a host, and managers and gateways that link to it.
class HostServiceTest : public ::testing::Test {
 protected:
  using Manager = TestCaller<FromHost>;
  using Gateway = TestCaller<HostToGateway>;

  HostServiceTest() {
    folder.write("tokenizer.json", "{}");
    service.emplace(
        loop.get_executor(),
        host,
        kHost,
        test_facts(),
        HostServiceHooks{
            .on_configuration = [this](std::uint64_t revision,
                                       const std::string& text) { configured = {revision, text}; },
            .find_text =
                [this](const auto& /*model*/, const auto& /*digest*/) {
                  return Result<std::filesystem::path>(folder.path);
                }},
        HostServiceOptions{.status = {.most = milliseconds(5), .least = milliseconds(1)}});
    listener = test_listener(
        loop,
        net::self_of(cluster.issue(net::Role::kAgent, "h3")),
        {net::Role::kManager, net::Role::kGateway},
        [this](auto link, const auto& peer) { service->take(std::move(link), peer); });
    service->heard(core::WorkerUp{.device = kDevice, .epoch = kLife});
  }

  /// A process of this name, perhaps again.
  net::Self self(net::Role role, const std::string& name) {
    const auto [at, added] = selves.try_emplace(name);
    if (added) {
      at->second = net::self_of(cluster.issue(role, name));
    }
    return at->second;
  }
  std::unique_ptr<Manager> manager(const std::string& name) {
    return std::make_unique<Manager>(
        loop, listener->port(), self(net::Role::kManager, name), decode_from_host);
  }
  /// One that leads, and has heard all there is to know.
  std::unique_ptr<Manager> leader(const std::string& name, std::uint64_t term) {
    auto made = manager(name);
    made->say(ToHost(Lead{.term = term}));
    net::run_until(loop, [&] { return made->template last<HostKnown>() != nullptr; });
    return made;
  }
  std::unique_ptr<Gateway> gateway(const std::string& name) {
    auto made = std::make_unique<Gateway>(
        loop, listener->port(), self(net::Role::kGateway, name), decode_host_to_gateway);
    net::run_until(loop, [&] { return made->template last<Lives>() != nullptr; });
    return made;
  }

  static GatewayToHost tell(core::WorkerMessage message, DeviceId device = kDevice) {
    return core::TellWorker{.device = device, .epoch = kLife, .message = std::move(message)};
  }
  static core::Submit submit(RequestId id) {
    core::Submit made{.request = id, .model = kModel, .prompt = {1}};
    made.choices.push_back({.params = {.max_tokens = 5}});
    return made;
  }
  /// Until the host's workers have been sent so many messages.
  void run_sent(std::size_t messages) {
    net::run_until(loop, [&] { return host.sent.size() >= messages; });
  }
  void token(RequestId id, spec::FinishReason finish = spec::FinishReason::kNone) {
    service->tokens(kDevice, kLife, {{.request = id, .token = 5, .finish = finish}});
  }

  TestFolder folder{};
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy{
      loop.get_executor()};
  net::TestCluster cluster{};
  std::map<std::string, net::Self> selves{};
  NotingHost host{};
  std::pair<std::uint64_t, std::string> configured{};
  std::optional<HostService> service{};
  std::unique_ptr<net::Listener> listener{};
};

TEST_F(HostServiceTest, TellsAManagerWhatItIsAndWhatItHas) {
  service->heard(core::WorkerSaid{
      .device = kDevice, .epoch = kLife, .report = core::DeviceReport{.usage = {.total = 8}}});
  service->heard(core::ImageState{.model = kModel, .bytes = 5, .host = kHost});
  const auto one = leader("m1", 1);
  const auto* here = std::get_if<HostHere>(&one->heard.at(0));
  ASSERT_NE(here, nullptr);
  EXPECT_EQ(here->host, kHost);
  EXPECT_EQ(here->facts.name, "h3");
  EXPECT_EQ(here->facts.devices.size(), 2U);
  ASSERT_NE(std::get_if<core::WorkerFound>(&one->heard.at(1)), nullptr);
  ASSERT_NE(std::get_if<core::WorkerSaid>(&one->heard.at(2)), nullptr);
  ASSERT_NE(std::get_if<core::ImageState>(&one->heard.at(3)), nullptr);
  ASSERT_NE(std::get_if<HostKnown>(&one->heard.at(4)), nullptr);
}

TEST_F(HostServiceTest, DoesWhatItsManagerOrders) {
  host.trouble = {"it is hot"};
  host.engine = {{.model = kModel, .device = kDevice, .since = Instant{Duration(1)}}};
  const auto one = leader("m1", 1);
  one->say(ToHost(Configuration{.revision = 4, .text = "models: []"}));
  one->say(ToHost(SetModels{.models = {{.name = "m", .digest = "d", .ids = {kModel}}}}));
  one->say(ToHost(core::LoadOn{.device = kDevice, .model = kModel}));
  one->say(ToHost(core::TellWorker{
      .device = kDevice, .epoch = kLife, .message = core::RecallRequests{.most = 2}}));
  run_sent(1);
  EXPECT_EQ(configured, std::pair(std::uint64_t{4}, std::string("models: []")));
  ASSERT_EQ(host.assigned.size(), 1U);
  EXPECT_EQ(host.assigned[0].name, "m");
  ASSERT_EQ(host.orders.size(), 1U);
  EXPECT_EQ(std::get<core::LoadOn>(host.orders[0]).model, kModel);
  EXPECT_EQ(host.sent[0].epoch, kLife);

  service->offers(4, {{.name = "m", .digest = "d", .ranks = {{.image_bytes = 5}}}});
  EXPECT_EQ(one->next<Offers>().revision, 4U);
  service->told(kDevice, kModel);
  EXPECT_EQ(one->next<Told>().model, kModel);
  service->heard(core::WorkerSaid{
      .device = kDevice, .epoch = kLife, .report = core::ModelServing{.model = kModel}});
  EXPECT_EQ(one->next<core::WorkerSaid>().device, kDevice);
  const auto status = one->next<HostStatus>();
  ASSERT_EQ(status.devices.size(), 2U);
  EXPECT_TRUE(status.devices[0].up);
  EXPECT_EQ(status.devices[0].usage.total, 4) << "what it lends";
  EXPECT_FALSE(status.devices[1].up);
  EXPECT_EQ(status.usage.total, 9);
  EXPECT_EQ(status.troubles, host.trouble);
  ASSERT_EQ(status.engines.size(), 1U);
  EXPECT_NE(status.engines[0].since, Instant{Duration(1)}) << "it goes as an age";

  const auto next = leader("m2", 2);
  const auto* here = next->last<HostHere>();
  ASSERT_EQ(here->facts.assigned.size(), 1U) << "its names outlive the manager that gave them";
  EXPECT_EQ(here->facts.assigned[0].ids, std::vector{kModel});
}

TEST_F(HostServiceTest, HearsNobodyWhoDoesNotLead) {
  const auto one = manager("m1");
  one->say(ToHost(core::LoadOn{.device = kDevice, .model = kModel}));
  EXPECT_TRUE(one->end().ends_with("it orders and does not lead; want Lead first"));
  EXPECT_TRUE(host.orders.empty());
}

TEST_F(HostServiceTest, FollowsTheHighestTerm) {
  const auto one = leader("m1", 2);
  const auto two = leader("m2", 3);
  EXPECT_TRUE(one->end().ends_with(
      "manager \"m2\" of cluster \"prod\" leads in term 3, which is after term 2"))
      << one->ends[0];
  net::run_until(loop, [&] { return one->ups == 2; });
  one->say(ToHost(Lead{.term = 2}));
  EXPECT_TRUE(
      one->end().ends_with("it leads in term 2, and manager \"m2\" of cluster \"prod\" in term 3"))
      << one->ends[1];
  net::run_until(loop, [&] { return one->ups == 3; });
  EXPECT_EQ(one->last<LaterTerm>(), nullptr) << "a manager that may not know what that is";
  one->say(ToHost(Lead{.term = 3, .hears_of_terms = true}));
  EXPECT_TRUE(one->end().ends_with("in term 3")) << "that is another's term";
  ASSERT_NE(one->last<LaterTerm>(), nullptr);
  EXPECT_EQ(one->last<LaterTerm>()->term, 4U);
  net::run_until(loop, [&] { return one->ups == 4; });
  one->say(ToHost(Lead{.term = 1, .hears_of_terms = true}));
  one->end();
  EXPECT_EQ(one->last<LaterTerm>()->term, 3U);
  service->told(kDevice, kModel);
  EXPECT_EQ(two->next<Told>().model, kModel) << "it leads still";
  EXPECT_EQ(host.forgotten, 1) << "what the first had ordered";
}

TEST_F(HostServiceTest, TheSameManagerMayComeAgain) {
  auto one = leader("m1", 2);
  one = leader("m1", 2);
  service->told(kDevice, kModel);
  EXPECT_EQ(one->next<Told>().model, kModel);
}

TEST_F(HostServiceTest, EndsTheLinkOfAManagerThatOrdersWhatCannotBe) {
  const auto one = leader("m1", 1);
  const std::vector<ToHost> wrong = {
      core::LoadOn{.device = kDevice, .model = kModel},  // A model that it was not told of.
      core::TellWorker{.device = device_id(HostId(9), 0), .message = core::NoPages{}},
      Lead{.term = 1}};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    one->say(wrong[i]);
    one->end();
    EXPECT_TRUE(host.orders.empty());
    EXPECT_TRUE(host.sent.empty());
    one->heard.clear();
    net::run_until(loop, [&] { return one->ups == static_cast<int>(i) + 2; });
    one->say(ToHost(Lead{.term = 1}));
    net::run_until(loop, [&] { return one->last<HostKnown>() != nullptr; });
  }
}

TEST_F(HostServiceTest, RunsWhatAGatewaySubmits) {
  const auto lead = leader("m1", 1);
  lead->heard.clear();
  const auto one = gateway("g1");
  EXPECT_EQ(one->last<Lives>()->host, kHost);
  EXPECT_EQ(one->last<Lives>()->lives, (std::vector<Life>{{.device = kDevice, .epoch = kLife}}));
  one->say(tell(submit(request(1))));
  run_sent(1);
  EXPECT_EQ(std::get<core::Submit>(host.sent[0].message).prompt, std::vector<TokenId>{1});
  token(request(1));
  const auto said = one->next<core::WorkerSaid>();
  EXPECT_EQ(said.device, kDevice);
  EXPECT_EQ(said.epoch, kLife);
  EXPECT_EQ(std::get<core::TokensProduced>(said.report).tokens.at(0).token, 5);
  service->heard(core::WorkerSaid{
      .device = kDevice, .epoch = kLife, .report = core::RequestReturned{.request = request(1)}});
  EXPECT_TRUE(std::holds_alternative<core::RequestReturned>(one->next<core::WorkerSaid>().report));
  EXPECT_EQ(lead->last<core::WorkerSaid>(), nullptr) << "its front tells the manager";
  token(request(1));
  one->say(tell(submit(request(2))));
  run_sent(2);
  token(request(2), spec::FinishReason::kStop);
  const auto next = one->next<core::WorkerSaid>();
  EXPECT_EQ(std::get<core::TokensProduced>(next.report).tokens.at(0).request, request(2))
      << "of the first nothing more is said";
  one->say(tell(core::CancelRequest{.request = request(2)}));
  one->say(tell(submit(request(3))));
  run_sent(3);
  EXPECT_NE(std::get_if<core::Submit>(&host.sent[2].message), nullptr)
      << "what has ended needs no cancelling";
  one->say(tell(core::FinishChoice{.request = request(3)}));
  run_sent(4);
  EXPECT_NE(host.last<core::FinishChoice>(), nullptr);
}

TEST_F(HostServiceTest, ALinkEndsWithItsRequests) {
  auto one = gateway("g1");
  one->say(tell(submit(request(1))));
  one->say(tell(submit(request(2))));
  run_sent(2);
  one->leave();
  run_sent(4);
  EXPECT_EQ(std::get<core::CancelRequest>(host.sent[2].message).request, request(1));
  EXPECT_EQ(std::get<core::CancelRequest>(host.sent[3].message).request, request(2));
  EXPECT_EQ(host.sent[3].epoch, kLife);
}

TEST_F(HostServiceTest, AnotherLinkOfAGatewayReplacesTheFirst) {
  const auto one = gateway("g1");
  one->say(tell(submit(request(1))));
  run_sent(1);
  const auto again = std::make_unique<Gateway>(
      loop, listener->port(), self(net::Role::kGateway, "g1"), decode_host_to_gateway);
  EXPECT_NE(one->end().find("another link of gateway \"g1\""), std::string::npos);
  one->leave();
  run_sent(2);
  EXPECT_EQ(host.last<core::CancelRequest>()->request, request(1));
}

TEST_F(HostServiceTest, TellsOfALifeThatEndedAndOfOneThatIsNot) {
  const auto lead = leader("m1", 1);
  const auto one = gateway("g1");
  one->say(tell(submit(request(1))));
  run_sent(1);
  service->heard(core::WorkerDown{.device = kDevice, .epoch = kLife});
  EXPECT_EQ(one->next<LifeEnded>().epoch, kLife);
  net::run_until(loop, [&] { return lead->last<core::WorkerDown>() != nullptr; });
  one->say(tell(submit(request(2))));
  EXPECT_EQ(one->next<LifeEnded>().epoch, kLife) << "whoever sent it may not have heard";
  EXPECT_EQ(host.sent.size(), 1U);
}

TEST_F(HostServiceTest, ARequestThatIsSubmittedAgainIsCancelledFirst) {
  const auto one = gateway("g1");
  one->say(tell(submit(request(1))));
  one->say(tell(submit(request(1))));
  run_sent(3);
  EXPECT_NE(std::get_if<core::CancelRequest>(&host.sent[1].message), nullptr);
  EXPECT_NE(std::get_if<core::Submit>(&host.sent[2].message), nullptr);
}

TEST_F(HostServiceTest, EndsTheLinkOfAGatewayThatSaysWhatCannotBe) {
  const auto one = gateway("g1");
  one->say(tell(submit(request(1))));
  run_sent(1);
  const auto two = gateway("g2");
  two->say(tell(submit(request(2))));
  EXPECT_TRUE(two->end().ends_with("is of front 2, which gateway \"g1\" of cluster \"prod\" has"))
      << two->ends.at(0);
  one->say(tell(submit(request(1, FrontId(9)))));
  EXPECT_TRUE(one->end().ends_with("is of front 9, and this gateway has front 2")) << one->ends[0];
  net::run_until(loop, [&] { return one->ups == 2; });
  one->say(tell(submit(request(1)), device_id(HostId(9), 0)));
  one->end();
  net::run_until(loop, [&] { return one->ups == 3; });
  one->say(ToHost(Lead{.term = 9}));
  EXPECT_NE(one->end().find("message"), std::string::npos) << "a gateway does not lead";
  EXPECT_EQ(host.last<core::Submit>()->request, request(1));
}

TEST_F(HostServiceTest, SendsAModelsTextFiles) {
  const auto one = gateway("g1");
  one->say(GatewayToHost(FetchText{.model = "m", .digest = "d"}));
  const auto file = one->next<TextFile>();
  EXPECT_EQ(file.name, "tokenizer.json");
  EXPECT_EQ(file.bytes, "{}");
  EXPECT_TRUE(file.last);
}

TEST_F(HostServiceTest, ThatIsToGoSaysSoToThisManagerAndTheNext) {
  const auto one = leader("m1", 1);
  one->say(ToHost(Leave{}));
  EXPECT_EQ(one->next<core::HostLeaving>().host, kHost);
  const auto two = leader("m2", 2);
  EXPECT_NE(two->last<core::HostLeaving>(), nullptr);
  two->say(ToHost(Leave{.leaving = false}));
  EXPECT_FALSE(two->next<core::HostLeaving>().leaving);
  const auto three = leader("m3", 3);
  EXPECT_EQ(three->last<core::HostLeaving>(), nullptr);
}

TEST_F(HostServiceTest, HearsWhichHostsHaveModels) {
  const auto one = leader("m1", 1);
  EXPECT_TRUE(std::get<HostHere>(one->heard.at(0)).shares_cache);
  const std::vector<host::Holder> holders{{.model = "chat", .hosts = {{.name = "h4"}}}};
  one->say(ToHost(Holders{.models = holders}));
  net::run_until(loop, [&] { return host.holders == holders; });
}

TEST_F(HostServiceTest, RemembersPastLoadsForTheNextManager) {
  using std::chrono::minutes;
  const auto one = leader("m1", 1);
  EXPECT_TRUE(std::get<HostHere>(one->heard.at(0)).remembers_loads);
  one->say(ToHost(TellLoads{.length = minutes(5)}));
  EXPECT_TRUE(one->next<Loads>().last) << "it has nothing yet";
  one->say(ToHost(
      Loads{.length = minutes(5),
            .keep = 3,
            .models = {{"chat", {{5, 1, 2}, {6, 1, 2}, {7, 1, 2}}}, {"code", {{7, 1, 1}}}}}));
  one->say(ToHost(
      Loads{.length = minutes(5), .keep = 3, .models = {{"chat", {{6, 0.5, 1}, {8, 3, 4}}}}}));

  const auto two = leader("m2", 2);
  two->say(ToHost(TellLoads{.length = minutes(5)}));
  auto heard = two->next<Loads>();
  EXPECT_EQ(heard.length, minutes(5));
  EXPECT_TRUE(heard.last);
  EXPECT_FALSE(heard.same);
  ASSERT_EQ(heard.models.size(), 2U);
  ASSERT_EQ(heard.models[0].windows.size(), 3U) << "so many are kept";
  EXPECT_EQ(heard.models[0].windows[0].window, 6);
  EXPECT_EQ(heard.models[0].windows[0].mean, 0.5F) << "what it was told last";
  EXPECT_EQ(heard.models[0].windows[2].peak, 4);
  two->say(ToHost(TellLoads{.length = minutes(5), .model = "chat", .window = 9}));
  heard = two->next<Loads>();
  ASSERT_EQ(heard.models.size(), 1U);
  EXPECT_EQ(heard.models[0].model, "code");

  history::LoadBook book;
  book.begin(minutes(5), 3);
  put(heard, book);
  for (std::int64_t window = 6; window < 9; ++window) {
    const double mean = window == 6 ? 0.5 : window == 7 ? 1 : 3;
    book.put("chat", window, {.mean = mean, .peak = mean + (window == 6 ? 0.5 : 1)});
  }
  two->say(ToHost(TellLoads{.length = minutes(5), .digest = book.digest()}));
  heard = two->next<Loads>();
  EXPECT_TRUE(heard.same);
  EXPECT_TRUE(heard.models.empty());
  two->say(ToHost(TellLoads{.length = minutes(1)}));
  EXPECT_TRUE(two->next<Loads>().models.empty()) << "of windows of that length it knows nothing";
  two->say(ToHost(Loads{.length = minutes(1), .keep = 3, .models = {{"chat", {{60, 1, 1}}}}}));
  two->say(ToHost(TellLoads{.length = minutes(5)}));
  EXPECT_TRUE(two->next<Loads>().models.empty()) << "nor any more of windows of the other";
}

TEST_F(HostServiceTest, EndsTheLinkOfAManagerWhosePastLoadsCannotBe) {
  const auto one = leader("m1", 1);
  one->say(ToHost(Loads{.length = std::chrono::minutes(5), .models = {{"chat", {{5, -1, 1}}}}}));
  EXPECT_NE(one->end().find("want loads from 0 to 1e9"), std::string::npos) << one->ends[0];
}

TEST_F(HostServiceTest, IsEmptyWhenNothingRunsAndNothingIsLeftForItsManager) {
  EXPECT_TRUE(service->empty());
  const auto one = gateway("g1");
  one->say(tell(submit(request(1))));
  run_sent(1);
  EXPECT_FALSE(service->empty());
  token(request(1), spec::FinishReason::kStop);
  EXPECT_TRUE(service->empty());
  host.there = {{kDevice, {kModel}}};
  EXPECT_TRUE(service->empty()) << "nobody is there who could take the model away";
  const auto manager = leader("m1", 1);
  EXPECT_FALSE(service->empty());
  host.there = {{kDevice, {}}};
  EXPECT_TRUE(service->empty());
  host.engine = {{.model = kModel, .device = kDevice, .state = core::EngineState::kRunning}};
  EXPECT_FALSE(service->empty());
}

}  // namespace
}  // namespace heddle::remote
