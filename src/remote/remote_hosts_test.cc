#include "remote/remote_hosts.h"

#include <chrono>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remote/test_callee.h"
#include "remote/test_folder.h"

namespace heddle::remote {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr serving::Place kPlace{.device = kDevice, .epoch = kLife};
constexpr serving::Place kElsewhere{.device = kOther, .epoch = kLife};
constexpr serving::Place kNowhere{.device = device_id(HostId(77), 0), .epoch = kLife};

/// Notes what becomes of a request.
class Client final : public core::RequestSink {
 public:
  void on_tokens(const std::vector<core::TokenEvent>& news) override {
    for (const core::TokenEvent& token : news) {
      tokens.push_back(token.token);
    }
  }
  void on_loading(std::uint64_t /*loaded*/, std::uint64_t /*total*/) override {}
  void on_done() override { done = true; }
  void on_error(const Error& error) override { failure = error.message; }

  std::vector<TokenId> tokens{};
  bool done = false;
  std::string failure{};
};

/// As Client, for a request that an external engine answers.
class EngineClient final : public core::ExternalSink {
 public:
  void on_waiting(Duration /*since*/) override {}
  void on_ready(const core::EngineRoute& to) override { route = to; }
  void on_lost(const Error& /*error*/) override {}
  void on_error(const Error& /*error*/) override {}

  std::optional<core::EngineRoute> route{};
};

/// A gateway, its front, and one host or two.
class RemoteHostsTest : public ::testing::Test, public serving::ManagerPort {
 protected:
  using Agent = TestCallee<GatewayToHost>;

  RemoteHostsTest() { make({.rest = milliseconds(1)}); }

  void make(RemoteHostsOptions options) {
    options.connector = test_connector();
    hosts.emplace(
        loop.get_executor(), self, *this, [this](HostId id) { linked.push_back(id); }, options);
    front.emplace(loop.get_executor(), *this, *hosts, metrics);
    front->set_models({{kModel, {.image_bytes = 700}}});
    hosts->set_front(*front);
  }

  void tell(const serving::RequestNews& news) override { told.push_back(news); }
  [[nodiscard]] std::int64_t tokens_max(ModelId /*model*/) const override { return 100; }

  std::unique_ptr<Agent> agent(const std::string& name) {
    return std::make_unique<Agent>(
        loop, net::self_of(cluster.issue(net::Role::kAgent, name)), decode_gateway_to_host);
  }
  static HostAddress address(const Agent& agent,
                             HostId id = kHost,
                             const std::string& name = "h3") {
    return {.id = id, .name = name, .address = agent.address()};
  }
  void greet(Agent& agent, HostId id = kHost) {
    agent.run_linked(agent.links + (agent.up() ? 0 : 1));
    const std::size_t before = linked.size();
    agent.say(HostToGateway(Lives{.host = id, .lives = {{device_id(id, 0), kLife}}}));
    net::run_until(loop, [&] { return linked.size() > before; });
  }
  /// A host that is linked.
  std::unique_ptr<Agent> host() {
    auto made = agent("h3");
    hosts->set_hosts({address(*made)});
    greet(*made);
    return made;
  }
  std::shared_ptr<Client> start(std::uint64_t number) {
    auto record = std::make_shared<core::RequestRecord>();
    record->id = request(number);
    record->model = kModel;
    record->prompt = {7, 8, 9};
    record->choices.resize(1, {.max_tokens = 50});
    auto client = std::make_shared<Client>();
    front->start(record, client);
    return client;
  }
  void dispatch(std::uint64_t number, const serving::Place& place = kPlace) {
    front->carry_out(core::Dispatch{
        .request = request(number), .device = place.device, .epoch = place.epoch, .tokens = 40});
  }
  /// Has a request run on the host.
  std::shared_ptr<Client> run(Agent& agent, std::uint64_t number) {
    auto client = start(number);
    dispatch(number);
    agent.next<core::TellWorker>();
    return client;
  }
  static HostToGateway token(std::uint64_t number,
                             TokenId id,
                             std::int64_t position,
                             bool last = false,
                             const serving::Place& from = kPlace) {
    core::TokenEvent event{.request = request(number), .position = position, .token = id};
    event.finish = last ? spec::FinishReason::kStop : spec::FinishReason::kNone;
    return core::WorkerSaid{.device = from.device,
                            .epoch = from.epoch,
                            .report = core::TokensProduced{.tokens = {event}}};
  }
  static HostToGateway returned(std::uint64_t number) {
    return core::WorkerSaid{.device = kDevice,
                            .epoch = kLife,
                            .report = core::RequestReturned{.request = request(number)}};
  }
  /// The last news of this kind; null where there is none.
  template <class T>
  [[nodiscard]] const T* last() const {
    for (auto at = told.rbegin(); at != told.rend(); ++at) {
      if (const auto* news = std::get_if<T>(&*at)) {
        return news;
      }
    }
    return nullptr;
  }
  template <class T>
  T next() {
    told.clear();
    net::run_until(loop, [this] { return last<T>() != nullptr; });
    return *last<T>();
  }

  net::TestCluster cluster{};
  net::Self self = net::self_of(cluster.issue(net::Role::kGateway, "g1"));
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy{
      loop.get_executor()};  ///< While files are written beside it.
  Metrics metrics{};
  std::vector<serving::RequestNews> told{};
  std::vector<HostId> linked{};
  std::optional<RemoteHosts> hosts{};
  std::optional<serving::Front> front{};
};

TEST_F(RemoteHostsTest, RunARequest) {
  const auto made = host();
  const auto client = start(1);
  dispatch(1);
  const core::TellWorker tell = made->next<core::TellWorker>();
  EXPECT_EQ(tell.device, kDevice);
  EXPECT_EQ(tell.epoch, kLife);
  EXPECT_EQ(std::get<core::Submit>(tell.message).prompt, (std::vector<TokenId>{7, 8, 9}));
  made->say(token(1, 20, 0));
  made->say(token(1, 21, 1, true));
  net::run_until(loop, [&] { return client->done; });
  EXPECT_EQ(client->tokens, (std::vector<TokenId>{20, 21}));
  EXPECT_NE(last<core::RequestFinished>(), nullptr);
}

TEST_F(RemoteHostsTest, AreToldWhatClientsNeedNoMore) {
  const auto made = host();
  run(*made, 1);
  front->finish_choice(request(1), 0, spec::FinishReason::kStop);
  EXPECT_TRUE(std::holds_alternative<core::FinishChoice>(made->next<core::TellWorker>().message));
  run(*made, 2);
  front->cancel(request(2));
  EXPECT_TRUE(std::holds_alternative<core::CancelRequest>(made->next<core::TellWorker>().message));
}

TEST_F(RemoteHostsTest, GiveRequestsUpOfWhichTheManagerHears) {
  const auto made = host();
  run(*made, 1);
  made->say(returned(9));
  made->say(returned(1));
  const auto said = next<core::WorkerSaid>();
  EXPECT_EQ(std::get<core::RequestReturned>(said.report).request, request(1))
      << "and not of one that is nowhere";
  run(*made, 2);
  made->say(HostToGateway(core::WorkerSaid{
      .device = kDevice,
      .epoch = kLife,
      .report = core::RequestFailed{.request = request(2), .error = {Code::kCorrupt, "no"}}}));
  EXPECT_TRUE(std::holds_alternative<core::RequestFailed>(next<core::WorkerSaid>().report));
}

TEST_F(RemoteHostsTest, LoseTheRequestsOfALifeThatEnds) {
  const auto made = host();
  const auto client = run(*made, 1);
  made->say(token(1, 20, 0));
  made->say(HostToGateway(LifeEnded{.device = kDevice, .epoch = kLife}));
  const auto lost = next<core::PlaceLost>();
  EXPECT_EQ(lost.device, kDevice);
  EXPECT_EQ(lost.epoch, kLife);
  EXPECT_EQ(lost.requests, std::vector{request(1)});
  EXPECT_EQ(lost.advanced, std::vector{request(1)}) << "all that it said was heard before";
  EXPECT_EQ(client->tokens, std::vector<TokenId>{20});
}

TEST_F(RemoteHostsTest, LoseAllRequestsWithTheLink) {
  const auto made = host();
  run(*made, 1);
  start(2);
  dispatch(2, kElsewhere);
  made->next<core::TellWorker>();
  made->cut();
  net::run_until(loop, [this] {
    return std::ranges::count_if(told, [](const auto& news) {
             return std::holds_alternative<core::PlaceLost>(news);
           }) == 2;
  });
  EXPECT_THAT(hosts->troubles(), ElementsAre(HasSubstr("host h3 is not linked: ")));
  greet(*made);
  EXPECT_THAT(hosts->troubles(), IsEmpty());
  dispatch(1);
  EXPECT_EQ(std::get<core::Submit>(made->next<core::TellWorker>().message).request, request(1));
}

TEST_F(RemoteHostsTest, LoseWhatCannotBeSent) {
  start(1);
  dispatch(1, kNowhere);
  EXPECT_EQ(last<core::PlaceLost>(), nullptr) << "not from within the call";
  EXPECT_EQ(next<core::PlaceLost>().requests, std::vector{request(1)});

  const auto made = agent("h3");
  hosts->set_hosts({address(*made)});
  start(2);
  dispatch(2);
  EXPECT_EQ(next<core::PlaceLost>().requests, std::vector{request(2)}) << "it is not linked yet";
  front->cancel(request(2));  // Of which nobody is told.
  greet(*made);
  EXPECT_THAT(made->heard, IsEmpty());
}

TEST_F(RemoteHostsTest, LoseAPlaceAsAWhole) {
  make({.rest = hours(1)});
  const auto made = agent("h3");
  hosts->set_hosts({address(*made)});
  start(1);
  dispatch(1);
  greet(*made);
  start(2);
  dispatch(2);
  made->say(HostToGateway(LifeEnded{.device = kOther, .epoch = kLife}));
  EXPECT_EQ(next<core::PlaceLost>().requests, (std::vector{request(1), request(2)}))
      << "what runs there must not be taken for what is lost there";
  EXPECT_THAT(made->heard, IsEmpty());
  dispatch(1);
  EXPECT_TRUE(std::holds_alternative<core::Submit>(made->next<core::TellWorker>().message));
}

TEST_F(RemoteHostsTest, EndTheLinkOfAHostThatMakesNoSense) {
  const auto made = agent("h3");
  hosts->set_hosts({address(*made)});
  made->run_linked(1);
  made->say(token(1, 20, 0));
  EXPECT_THAT(made->end(), HasSubstr("it does not say Lives once, and first"));
  made->run_linked(2);
  made->say(HostToGateway(Lives{.host = HostId(77)}));
  EXPECT_THAT(made->end(), HasSubstr("it is host 77, and want host 3"));
  made->run_linked(3);
  made->say(HostToGateway(Lives{.host = kHost, .lives = {{kNowhere.device, kLife}}}));
  EXPECT_THAT(made->end(), HasSubstr("which is of host 77, and is host 3"));
  EXPECT_THAT(linked, IsEmpty());

  const std::vector<HostToGateway> odd = {
      Lives{.host = kHost},
      token(1, 20, 0, false, kNowhere),
      LifeEnded{.device = kNowhere.device, .epoch = kLife},
      TextFile{.model = "small", .name = "x", .ends = true},
      TextFailed{.model = "small", .error = {Code::kNotFound, "no"}}};
  for (std::size_t i = 0; i < odd.size(); ++i) {
    made->run_linked(static_cast<int>(4 + i));
    greet(*made);
    made->say(odd[i]);
    EXPECT_THAT(
        made->end(),
        testing::AnyOf(
            HasSubstr("Lives once"), HasSubstr("of host 77"), HasSubstr("it was not asked")));
  }
  EXPECT_EQ(linked.size(), odd.size());
  made->run_linked(static_cast<int>(4 + odd.size()));
  greet(*made);
  made->say_bytes("nonsense");
  made->end();
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(RemoteHostsTest, AreThoseOfTheirNames) {
  const auto made = agent("h4");
  hosts->set_hosts({address(*made)});
  net::run_until(loop, [this] { return hosts->troubles().at(0).find("h4") != std::string::npos; });
  EXPECT_THAT(linked, IsEmpty());
}

TEST_F(RemoteHostsTest, ComeAndGo) {
  const auto first = host();
  run(*first, 1);
  const auto second = agent("h4");
  hosts->set_hosts({address(*first), address(*second, HostId(4), "h4")});
  greet(*second, HostId(4));
  EXPECT_EQ(first->links, 1);
  hosts->set_hosts({address(*second, HostId(4), "h4")});
  EXPECT_EQ(last<core::PlaceLost>(), nullptr) << "its link goes on until it ends";
  first->cut();
  EXPECT_EQ(next<core::PlaceLost>().requests, std::vector{request(1)});
  hosts->set_hosts({address(*second, HostId(4), "h4")});
  EXPECT_TRUE(hosts->troubles().empty()) << "it is none of them any more";
  dispatch(1, {.device = device_id(HostId(4), 0), .epoch = kLife});
  second->next<core::TellWorker>();
  EXPECT_EQ(second->links, 1);
}

TEST_F(RemoteHostsTest, SendTheFilesOfAModel) {
  const auto made = host();
  const TestFolder folder;
  std::vector<std::string> ends;
  hosts->fetch_text(
      {.model = "small", .digest = "5a"}, folder.path / "5a", [&](const Result<void>& how) {
        ends.emplace_back(how ? "done" : how.error().message);
      });
  EXPECT_EQ(made->next<FetchText>().digest, "5a");
  made->say(HostToGateway(TextFile{
      .model = "small", .digest = "5a", .name = "tokenizer.json", .bytes = "{}", .ends = true}));
  made->cut();
  greet(*made);
  made->next<FetchText>();
  made->say(HostToGateway(TextFile{.model = "small",
                                   .digest = "5a",
                                   .name = "tokenizer.json",
                                   .bytes = "{\"a\": 1}",
                                   .ends = true,
                                   .last = true}));
  net::run_until(loop, [&] { return !ends.empty(); });
  EXPECT_THAT(ends, ElementsAre("done"));
  EXPECT_EQ(folder.read("5a/tokenizer.json"), "{\"a\": 1}");

  hosts->fetch_text({.model = "big", .digest = "5b"},
                    folder.path / "5b",
                    [&](const Result<void>& how) { ends.push_back(how.error().message); });
  made->next<FetchText>();
  made->say(HostToGateway(
      TextFailed{.model = "big", .digest = "5b", .error = {Code::kNotFound, "no such model"}}));
  net::run_until(loop, [&] { return ends.size() == 2; });
  EXPECT_EQ(ends[1], "fetch the text of model 'big': host 3: no such model");
}

TEST_F(RemoteHostsTest, AreTheWayToTheirEngines) {
  auto asked = std::make_shared<core::ExternalRequest>();
  asked->id = request(1);
  asked->model = kModel;
  const auto client = std::make_shared<EngineClient>();
  front->start_external(asked, client);
  dispatch(1);
  ASSERT_TRUE(client->route.has_value());
  EXPECT_EQ(*client->route, (core::EngineRoute{.model = kModel, .host = kHost}));
}

}  // namespace
}  // namespace heddle::remote
