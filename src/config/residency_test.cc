#include "config/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ModelConfig engine(const std::string& id, std::uint64_t memory = 0, const std::string& on = "gpu") {
  return {.id = id, .engine = EngineConfig{.command = {"run"}, .device = on, .memory = memory}};
}

/// What each model displaces, as "a: b c; b: a;".
std::string displaced(const Config& config) {
  std::string text;
  for (const ModelConfig& model : config.models) {
    text += model.id + ":";
    for (const std::string& other : model.displaces) {
      text += " " + other;
    }
    text += "; ";
  }
  return text;
}

TEST(Groups, EnginesInNoneAreThereOneAtATime) {
  Config config{.models = {engine("a"), engine("b"), {.id = "native"}, engine("sized", 1)}};
  Diagnosis diagnosis;
  resolve_groups(config, diagnosis);
  EXPECT_EQ(displaced(config), "a: b sized; b: a sized; native:; sized:; ");
  ASSERT_EQ(config.groups.size(), 1U);
  EXPECT_THAT(config.groups[0].members, ElementsAre("a", "b"));
}

TEST(Groups, EnginesInNoneShareNothingAcrossDevices) {
  Config config{.models = {engine("a", 0, "gpu0"), engine("b", 0, "gpu1"), engine("c", 0, "gpu1")}};
  Diagnosis diagnosis;
  resolve_groups(config, diagnosis);
  EXPECT_EQ(displaced(config), "a:; b: c; c: b; ");
  ASSERT_EQ(config.groups.size(), 2U);
  EXPECT_THAT(config.groups[1].members, ElementsAre("b", "c"));
}

TEST(Groups, OneThatRunsElsewhereTakesNoPart) {
  Config config{.models = {engine("a"), engine("b")}};
  config.models[1].engine->command.clear();
  Diagnosis diagnosis;
  resolve_groups(config, diagnosis);
  EXPECT_EQ(displaced(config), "a:; b:; ");
}

TEST(Groups, SwapExclusiveAndPersistentMeanWhatTheyMeanInLlamaSwap) {
  Config config{
      .models = {
          engine("s1"), engine("s2"), engine("t1"), engine("t2"), engine("p1"), engine("p2")}};
  config.groups = {{.name = "swapping", .members = {"s1", "s2"}},
                   {.name = "together", .swap = false, .exclusive = false, .members = {"t1", "t2"}},
                   {.name = "forever",
                    .swap = true,
                    .exclusive = false,
                    .persistent = true,
                    .members = {"p1", "p2"}}};
  Diagnosis diagnosis;
  resolve_groups(config, diagnosis);
  EXPECT_EQ(displaced(config), "s1: s2 t1 t2; s2: s1 t1 t2; t1:; t2:; p1: p2; p2: p1; ");
  EXPECT_THAT(diagnosis.problems, IsEmpty());
}

TEST(Groups, NativeModelsMayBeMembers) {
  Config config{.models = {{.id = "n1"}, {.id = "n2"}}};
  config.groups = {{.name = "g", .members = {"n1", "n2"}}};
  Diagnosis diagnosis;
  resolve_groups(config, diagnosis);
  EXPECT_EQ(displaced(config), "n1: n2; n2: n1; ");
}

TEST(Groups, MembersThatAreNotThereAreLeftOutAndMembersOfTwoAreRefused) {
  Config config{.models = {engine("a")}};
  config.groups = {{.name = "g", .members = {"a", "ghost"}}, {.name = "h", .members = {"a"}}};
  Diagnosis diagnosis{.origin = "f"};
  resolve_groups(config, diagnosis);
  EXPECT_THAT(diagnosis.warnings,
              ElementsAre(HasSubstr("groups.g.members: \"ghost\" is no model")));
  EXPECT_THAT(diagnosis.problems,
              ElementsAre(HasSubstr("groups.h.members: \"a\" is in the group g")));
}

std::string by_matrix(Matrix matrix, std::vector<ModelConfig> models) {
  Config config{.models = std::move(models)};
  Diagnosis diagnosis;
  resolve_matrix(matrix, config, diagnosis);
  return diagnosis.problems.empty() ? displaced(config) : diagnosis.problems.front();
}

TEST(Matrices, AModelDisplacesThoseWithWhichItSharesNoSet) {
  EXPECT_EQ(by_matrix({.vars = {{"g", "gemma"}}, .sets = {{"s", "(g | qwen) & tts"}, {"f", "big"}}},
                      {engine("big"), engine("gemma"), engine("qwen"), engine("tts")}),
            "big: gemma qwen tts; gemma: big qwen; qwen: big gemma; tts: big; ");
}

TEST(Matrices, AModelInNoSetRunsAlone) {
  EXPECT_EQ(
      by_matrix({.sets = {{"s", "a & b"}}}, {engine("a"), engine("b"), engine("c"), {.id = "n"}}),
      "a: c; b: c; c: a b; n:; ");
}

TEST(Matrices, SetsMayNameSets) {
  EXPECT_EQ(by_matrix({.sets = {{"s", "+llms & v"}, {"llms", "a|b"}}},
                      {engine("a"), engine("b"), engine("v")}),
            "a: b; b: a; v:; ");
}

TEST(Matrices, OperatorsBindAsInLlamaSwap) {
  // [a, b], [c]
  EXPECT_EQ(by_matrix({.sets = {{"s", "a & b | c"}}}, {engine("a"), engine("b"), engine("c")}),
            "a: c; b: c; c: a b; ");
}

TEST(Matrices, WhatCannotBeReadIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"a &", "is missing"},
      {"(a", "not closed"},
      {"a b", "\"b\" is not expected"},
      {"a) & b", "not expected"},
      {"ghost", "\"ghost\" is neither a model"},
      {"+ghost", "+ghost is no set"},
      {"+s", "name each other"},
      {"", "is missing"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(by_matrix({.sets = {{"s", text}}}, {engine("a"), engine("b")}), HasSubstr(problem))
        << text;
  }
  EXPECT_THAT(by_matrix({.sets = {{"s", std::string(10'000, '(')}}}, {engine("a")}),
              HasSubstr("nested"));
}

}  // namespace
}  // namespace heddle::config
