#include "core/codec.h"

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include <boost/pfr.hpp>
#include <gtest/gtest.h>

#include "base/json_line.h"
#include "base/test_fill.h"
#include "base/wire.h"
#include "core/agent_fields.h"
#include "core/engine_fields.h"
#include "core/test_find.h"
#include "core/worker_fields.h"

namespace heddle::core {
namespace {

template <class T>
void expect_all_fields() {
  if constexpr (test::is_variant<T>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (expect_all_fields<std::variant_alternative_t<I, T>>(), ...);
    }(std::make_index_sequence<std::variant_size_v<T>>{});
  } else {
    EXPECT_EQ(type_of<T>().fields.size(), boost::pfr::tuple_size_v<T>) << typeid(T).name();
  }
}

TEST(Codec, NoFieldIsLeftOut) {
  expect_all_fields<ManagerEvent>();
  expect_all_fields<ManagerCommand>();
  expect_all_fields<AgentEvent>();
  expect_all_fields<AgentCommand>();
  expect_all_fields<WorkerEvent>();
  expect_all_fields<WorkerCommand>();
  expect_all_fields<WorkerReport>();
  expect_all_fields<EnginesEvent>();
  expect_all_fields<EnginesCommand>();
  expect_all_fields<std::variant<policy::Footprint,
                                 policy::KvGroup,
                                 policy::StepPlan,
                                 policy::ModelBatch,
                                 policy::StepSlice,
                                 spec::SamplingParams,
                                 spec::Grammar,
                                 spec::TokenLogprob,
                                 spec::TokenDetails,
                                 ledger::PoolUsage,
                                 ledger::Share,
                                 ResidentReport,
                                 TokenEvent,
                                 SubmitChoice,
                                 Basis,
                                 AgentModel,
                                 ManagerModel,
                                 ShardPlace,
                                 GroupMember,
                                 GroupId,
                                 GroupHost,
                                 policy::WantedObjectives,
                                 ManagerDevice,
                                 ManagerOptions,
                                 PlannerOptions,
                                 policy::Calendar,
                                 policy::Load,
                                 Error,
                                 SliceDone,
                                 KvHeld,
                                 PrefixTaken>>();
}

/// Every message of a variant, with every field said.
template <class Variant>
std::vector<Variant> every_message() {
  std::vector<Variant> messages;
  const Type& type = type_of<Variant>();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::size_t i = 0; i < type.alternatives.size(); ++i) {
      Variant& message = messages.emplace_back();
      heddle::test::Filler(seed).fill(*type.alternatives[i], type.choose(&message, i));
    }
  }
  return messages;
}

template <class Variant>
void expect_to_come_back() {
  for (const Variant& sent : every_message<Variant>()) {
    const auto got = wire::decode<Variant>(wire::encode(sent));
    ASSERT_TRUE(got) << got.error().message;
    std::string before;
    std::string after;
    write_json_line(type_of<Variant>(), &sent, before);
    write_json_line(type_of<Variant>(), &*got, after);
    EXPECT_EQ(after, before);
  }
}

TEST(Codec, EveryMessageComesBackFromTheWireAsItWas) {
  expect_to_come_back<ManagerEvent>();
  expect_to_come_back<ManagerCommand>();
  expect_to_come_back<AgentEvent>();
  expect_to_come_back<AgentCommand>();
  expect_to_come_back<WorkerEvent>();
  expect_to_come_back<WorkerCommand>();
  expect_to_come_back<EnginesEvent>();
  expect_to_come_back<EnginesCommand>();
}

TEST(Codec, EveryLineComesBackAsItWas) {
  for (const ManagerEvent& event : every_message<ManagerEvent>()) {
    const std::string line = event_line(Instant{Duration{3}}, event);
    const auto parsed = parse_event<ManagerEvent>(line);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(event_line(parsed->at, parsed->event), line);
  }
  for (const WorkerCommand& command : every_message<WorkerCommand>()) {
    const std::string line = command_line(command);
    const auto parsed = parse_command<WorkerCommand>(line);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(command_line(*parsed), line);
  }
}

TEST(Codec, ACommandOfAWorkerComesBackFromItsBytes) {
  const WorkerCommand sent = AddSequence{.sequence = SequenceId(7), .tokens = {1, -2}};
  const Result<WorkerCommand> got = decode_worker_command(encode(sent));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(command_line(*got), command_line(sent));
  EXPECT_FALSE(decode_worker_command("what?"));
}

TEST(Codec, WritesOneLineThatPeopleCanRead) {
  const ManagerEvent event = RequestArrived{.request = RequestId(7),
                                            .model = ModelId(2),
                                            .prompt_tokens = 5,
                                            .max_tokens = 20,
                                            .patience = Duration{99}};
  EXPECT_EQ(event_line(Instant{Duration{1500}}, event),
            R"({"at":1500,"event":{"RequestArrived":{"request":7,"model":2,"priority":0,)"
            R"("prompt_tokens":5,"max_tokens":20,"open_ended":false,"patience":99,)"
            R"("adapter":""}}})");
}

TEST(Codec, KeepsStringsAndFloatsExactly) {
  Submit submit{.request = RequestId(1)};
  submit.choices.resize(1);
  submit.choices[0].params.temperature = 0.1F;
  submit.choices[0].params.logit_bias = {{5, -1.75e-30F}};
  const std::string line = event_line<WorkerEvent>(Instant{}, WorkerMessage{submit});
  const auto parsed = parse_event<WorkerEvent>(line);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(event_line<WorkerEvent>(parsed->at, parsed->event), line);
  const auto& again = std::get<Submit>(std::get<WorkerMessage>(parsed->event));
  EXPECT_EQ(again.choices[0].params.temperature, 0.1F);
  EXPECT_EQ(again.choices[0].params.logit_bias[0].second, -1.75e-30F);

  const ManagerCommand failed =
      FailRequest{.error = {Code::kCorrupt, std::string("a \"b\"\\\n\0 \xc3\xa9", 11)}};
  const auto command = parse_command<ManagerCommand>(command_line(failed));
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_EQ(std::get<FailRequest>(*command).error.message,
            std::get<FailRequest>(failed).error.message);
}

TEST(Codec, SaysWhereALineIsWrong) {
  const auto missing = parse_event<ManagerEvent>(R"({"at":1,"event":{"WorkerUp":{"device":3}}})");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kCorrupt);
  EXPECT_NE(missing.error().message.find("column 40: expected ,"), std::string::npos)
      << missing.error().message;
  EXPECT_FALSE(parse_event<ManagerEvent>(R"({"at":1,"event":{"NoSuchThing":{}}})"));
  EXPECT_FALSE(parse_event<ManagerEvent>(""));
  EXPECT_FALSE(parse_event<ManagerEvent>(R"({"at":1,"event":{"Tick":{}}}x)"));
}

// Any prefix and any single changed byte of a good line gives an error or a value, never a crash.
TEST(Codec, SurvivesDamagedLines) {
  const std::string line = event_line<ManagerEvent>(
      Instant{Duration{5}}, WorkerSaid{.report = LoadRefused{.reason = {Code::kNotFound, "n\n"}}});
  for (std::size_t i = 0; i < line.size(); ++i) {
    EXPECT_FALSE(parse_event<ManagerEvent>(std::string_view(line).substr(0, i)));
    for (const char c : {'"', '{', '\\', '9', '\0'}) {
      std::string damaged = line;
      damaged[i] = c;
      (void)parse_event<ManagerEvent>(damaged);  // What it gives does not matter here.
    }
  }
}

}  // namespace
}  // namespace heddle::core
