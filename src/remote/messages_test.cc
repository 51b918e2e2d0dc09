#include "remote/messages.h"

#include <functional>

#include <boost/pfr.hpp>
#include <gtest/gtest.h>

#include "base/json_line.h"
#include "base/rng.h"
#include "base/test_fill.h"
#include "base/wire.h"
#include "remote/remote_fields.h"

namespace heddle::remote {
namespace {

template <class T>
std::string line_of(const T& value) {
  std::string line;
  write_json_line(type_of<T>(), &value, line);
  return line;
}

/// One direction: how its messages are read.
template <class T>
struct Direction;
template <>
struct Direction<ToHost> {
  static constexpr auto decode = decode_to_host;
};
template <>
struct Direction<FromHost> {
  static constexpr auto decode = decode_from_host;
};
template <>
struct Direction<GatewayToHost> {
  static constexpr auto decode = decode_gateway_to_host;
};
template <>
struct Direction<HostToGateway> {
  static constexpr auto decode = decode_host_to_gateway;
};
template <>
struct Direction<GatewayToManager> {
  static constexpr auto decode = decode_gateway_to_manager;
};
template <>
struct Direction<ManagerToGateway> {
  static constexpr auto decode = decode_manager_to_gateway;
};

template <class T>
class EveryDirection : public ::testing::Test {};
using Directions = ::testing::
    Types<ToHost, FromHost, GatewayToHost, HostToGateway, GatewayToManager, ManagerToGateway>;
TYPED_TEST_SUITE(EveryDirection, Directions);

/// What a TellWorker or WorkerSaid of this direction may hold.
void make_pass(ToHost& message) {
  if (auto* tell = std::get_if<core::TellWorker>(&message)) {
    tell->message = core::RecallRequests{.model = ModelId(3), .most = 4};
  }
}
void make_pass(FromHost& message) {
  if (auto* said = std::get_if<core::WorkerSaid>(&message)) {
    said->report = core::DeviceReport{.version = 3, .pages_wanted = 4};
  }
}
void make_pass(GatewayToHost& message) {
  if (auto* tell = std::get_if<core::TellWorker>(&message)) {
    tell->message = core::Submit{.request = RequestId(6), .prompt = {1, 2}, .due = Duration(-3)};
  }
}
void make_pass(HostToGateway& message) {
  if (auto* said = std::get_if<core::WorkerSaid>(&message)) {
    said->report = core::TokensProduced{.tokens = {{.request = RequestId(6), .position = 7}}};
  } else if (auto* file = std::get_if<TextFile>(&message)) {
    file->name = "tokenizer.json";
  }
}
void make_pass(GatewayToManager& message) {
  if (auto* said = std::get_if<core::WorkerSaid>(&message)) {
    said->report = core::RequestReturned{.request = RequestId(6), .recalled = true};
  }
}
void make_pass(ManagerToGateway& /*message*/) {}

/// One of every message, with every field said.
template <class Variant>
std::vector<Variant> every(std::uint64_t seed) {
  std::vector<Variant> messages;
  const Type& type = type_of<Variant>();
  for (std::size_t i = 0; i < type.alternatives.size(); ++i) {
    Variant& message = messages.emplace_back();
    test::Filler(seed).fill(*type.alternatives[i], type.choose(&message, i));
    make_pass(message);
  }
  return messages;
}

TYPED_TEST(EveryDirection, BringsEachMessageAsItWas) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (const TypeParam& sent : every<TypeParam>(seed)) {
      const Result<TypeParam> got = Direction<TypeParam>::decode(encode(sent));
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(line_of(*got), line_of(sent));
    }
  }
}

TYPED_TEST(EveryDirection, SurvivesAnyBytes) {
  const std::uint64_t seed = 0xb17e5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  std::vector<std::string> sent;
  for (const TypeParam& message : every<TypeParam>(seed)) {
    sent.push_back(encode(message));
  }
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = sent[rng.below(sent.size())];
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0 && !bytes.empty(); --flips) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    bytes.resize(rng.below(bytes.size() + 1));
    refused += Direction<TypeParam>::decode(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 2000) << "bytes that mean nothing must be refused";
  EXPECT_FALSE(Direction<TypeParam>::decode(""));
}

template <class T>
void expect_all_fields() {
  EXPECT_EQ(type_of<T>().fields.size(), boost::pfr::tuple_size_v<T>) << type_of<T>().name;
}

template <class... T>
void expect_all_fields_of() {
  (expect_all_fields<T>(), ...);
}

TEST(RemoteMessages, NoFieldIsLeftOut) {
  expect_all_fields_of<Lead,
                       Configuration,
                       SetModels,
                       HostHere,
                       HostKnown,
                       Offers,
                       Told,
                       LaterTerm>();
  expect_all_fields_of<HostStatus, FetchText, Life, Lives, LifeEnded, TextFile, TextFailed>();
  expect_all_fields_of<ServedFacts, Served, Loading, Status, Leave, DrainHost, Apply>();
  expect_all_fields_of<PastWindow, PastLoad, Loads, TellLoads>();
  expect_all_fields_of<host::OfferedRank,
                       host::Block,
                       host::Offer,
                       host::HostFacts,
                       host::Assignment>();
  expect_all_fields_of<core::ServedModel,
                       core::DemandStatus,
                       core::NotedDecision,
                       core::ModelStatus,
                       core::SuspendCost,
                       core::EngineStatus,
                       core::HostEntry,
                       core::ResidentStatus,
                       core::GuestStatus,
                       core::DeviceStatus,
                       policy::Objectives>();
}

TEST(RemoteMessages, OfAnotherDirectionAreRefused) {
  const std::string lead = encode(ToHost(Lead{.term = 3}));
  EXPECT_FALSE(decode_gateway_to_host(lead)) << "a gateway does not lead";
  EXPECT_FALSE(decode_from_host(lead));
  const std::string arrived = encode(GatewayToManager(core::RequestArrived{}));
  EXPECT_FALSE(decode_from_host(arrived)) << "a host knows of no arrival";
  EXPECT_FALSE(decode_manager_to_gateway(arrived));
}

TEST(RemoteMessages, OfAWorkerGoOnlyWhereTheyBelong) {
  const core::TellWorker submit{.message = core::Submit{.request = RequestId(1)}};
  const core::TellWorker recall{.message = core::RecallRequests{}};
  const core::TellWorker gather{.message = core::Gather{}};
  const core::TellWorker cancel{.message = core::CancelRequest{}};
  const core::TellWorker load{.message = core::LoadModel{}};
  EXPECT_TRUE(decode_gateway_to_host(wire::encode(GatewayToHost(submit))));
  EXPECT_TRUE(decode_to_host(wire::encode(ToHost(recall))));
  EXPECT_TRUE(decode_to_host(wire::encode(ToHost(gather))));
  for (const core::WorkerMessage& message :
       {core::WorkerMessage(core::FitShare{}), core::WorkerMessage(core::StepBack{})}) {
    const core::TellWorker of_group{.message = message};
    EXPECT_TRUE(decode_to_host(wire::encode(ToHost(of_group))));
    EXPECT_FALSE(decode_gateway_to_host(wire::encode(GatewayToHost(of_group))));
  }
  EXPECT_FALSE(decode_gateway_to_host(wire::encode(GatewayToHost(gather))));
  EXPECT_TRUE(decode_gateway_to_host(wire::encode(GatewayToHost(cancel))));
  EXPECT_FALSE(decode_to_host(wire::encode(ToHost(cancel)))) << "its front says that";
  EXPECT_FALSE(decode_gateway_to_host(wire::encode(GatewayToHost(load))));
  EXPECT_FALSE(decode_to_host(wire::encode(ToHost(load))));
  EXPECT_EQ(decode_to_host(wire::encode(ToHost(submit))).error().message,
            "message TellWorker: a Submit does not go from a manager to a host");
  EXPECT_EQ(decode_gateway_to_host(wire::encode(GatewayToHost(recall))).error().message,
            "message TellWorker: a RecallRequests does not go from a gateway to a host");

  const core::WorkerSaid tokens{.report = core::TokensProduced{}};
  const core::WorkerSaid failed{.report = core::RequestFailed{.error = {Code::kCorrupt, "no"}}};
  const core::WorkerSaid moved{.report = core::KvMoved{}};
  EXPECT_TRUE(decode_from_host(wire::encode(FromHost(moved))));
  EXPECT_TRUE(
      decode_from_host(wire::encode(FromHost(core::WorkerSaid{.report = core::SteppedBack{}}))));
  EXPECT_FALSE(decode_host_to_gateway(wire::encode(HostToGateway(moved))));
  const core::WorkerSaid serving{.report = core::ModelServing{}};
  EXPECT_TRUE(decode_host_to_gateway(wire::encode(HostToGateway(tokens))));
  EXPECT_TRUE(decode_host_to_gateway(wire::encode(HostToGateway(failed))));
  EXPECT_TRUE(decode_gateway_to_manager(wire::encode(GatewayToManager(failed))));
  EXPECT_TRUE(decode_from_host(wire::encode(FromHost(serving))));
  EXPECT_FALSE(decode_host_to_gateway(wire::encode(HostToGateway(serving))));
  EXPECT_FALSE(decode_gateway_to_manager(wire::encode(GatewayToManager(tokens))));
  EXPECT_FALSE(decode_gateway_to_manager(wire::encode(GatewayToManager(serving))));
  EXPECT_FALSE(decode_from_host(wire::encode(FromHost(failed)))) << "its front says that";
}

TEST(RemoteMessages, CountNothingBelowZero) {
  EXPECT_FALSE(decode_gateway_to_manager(
      wire::encode(GatewayToManager(core::RequestArrived{.prompt_tokens = -1}))));
  EXPECT_FALSE(decode_gateway_to_manager(
      wire::encode(GatewayToManager(core::RequestFinished{.ttft = Duration(-1)}))));
  EXPECT_FALSE(
      decode_manager_to_gateway(wire::encode(ManagerToGateway(core::Dispatch{.tokens = -1}))));
  EXPECT_FALSE(decode_to_host(wire::encode(ToHost(core::EvictFrom{.free_pages = -1}))));
  EXPECT_FALSE(decode_from_host(wire::encode(FromHost(core::GuestState{.pages = -1}))));
  EXPECT_FALSE(decode_from_host(wire::encode(FromHost(core::EngineSaid{.held_pages = -1}))));
  EXPECT_FALSE(
      decode_from_host(wire::encode(FromHost(HostHere{.facts = {.devices = {{.pages = -1}}}}))));
}

TEST(RemoteMessages, NameOnlyFilesOfOneFolder) {
  EXPECT_TRUE(is_file_name("tokenizer.json"));
  EXPECT_TRUE(is_file_name(std::string(255, 'x')));
  for (const std::string& name : {std::string(),
                                  std::string("../x"),
                                  std::string("a/b"),
                                  std::string(".x"),
                                  std::string("a\0b", 3),
                                  std::string(256, 'x')}) {
    EXPECT_FALSE(is_file_name(name)) << name;
    EXPECT_FALSE(decode_host_to_gateway(wire::encode(HostToGateway(TextFile{.name = name}))));
  }
  const TextFile large{.name = "x", .bytes = std::string(kTextPieceMost + 1, 'x')};
  EXPECT_FALSE(decode_host_to_gateway(wire::encode(HostToGateway(large))));
}

TEST(RemoteMessages, InstantsGoAsAges) {
  using std::chrono::seconds;
  Status status{.models = {{.last_used = Instant{seconds(70)}}, {.last_used = Instant{}}},
                .engines = {{.since = Instant{seconds(100)}}},
                .decisions = {{.at = Instant{seconds(40)}}},
                .hosts = {{.since = Instant{seconds(90)}}, {}}};
  make_ages(status, Instant{seconds(100)});
  EXPECT_EQ(status.models[0].last_used, Instant{seconds(30)});
  EXPECT_EQ(status.engines[0].since, Instant{Duration(1)}) << "0 would mean never";
  EXPECT_EQ(status.decisions[0].at, Instant{seconds(60)});
  EXPECT_EQ(status.hosts[0].since, Instant{seconds(10)});
  EXPECT_EQ(status.hosts[1].since, Instant{}) << "never";
  make_instants(status, Instant{seconds(50)});
  EXPECT_EQ(status.models[0].last_used, Instant{seconds(20)});
  EXPECT_EQ(status.models[1].last_used, Instant{}) << "never";
  EXPECT_EQ(status.engines[0].since, Instant{seconds(50) - Duration(1)});
  EXPECT_EQ(status.decisions[0].at, Instant{seconds(-10)}) << "before this clock began";
  HostStatus host{.engines = {{.since = Instant{seconds(30)}}}};
  make_ages(host, Instant{seconds(100)});
  EXPECT_EQ(host.engines[0].since, Instant{seconds(70)});
  make_instants(host, Instant{seconds(70)});
  EXPECT_EQ(host.engines[0].since, Instant{Duration(1)}) << "0 would mean never";
}

}  // namespace
}  // namespace heddle::remote
