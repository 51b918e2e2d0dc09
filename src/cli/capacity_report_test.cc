#include "cli/capacity_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CapacityQuestion question_for_tests() {
  return {.replay = {.summary = {.models = {sim::ModelSpec{}}, .rows = 1000, .span = 7200s}},
          .target = 0.99};
}

/// A kind of which two servers are likely enough, and three are.
KindPlan enough(const std::string& name, std::int64_t gpus, double price) {
  KindPlan plan{.server = {.name = name, .gpus = gpus, .price = price}};
  plan.server.gpu.name = "G";
  plan.sizes = {{.servers = 1, .attainment = 0.5, .bounds = {0.4, 0.6}},
                {.servers = 2, .attainment = 0.991, .bounds = {0.985, 0.995}},
                {.servers = 3, .attainment = 1, .bounds = {1, 1}}};
  plan.least = 1;
  plan.sure = 2;
  plan.reliefs = {{.what = "a network ten times as fast", .attainment = 0.97}};
  return plan;
}

/// A kind of which no number is enough.
KindPlan too_slow() {
  KindPlan plan{.server = {.name = "slow", .gpus = 8}};
  plan.server.gpu.name = "S";
  plan.sizes = {{.servers = 64,
                 .attainment = 0.2,
                 .bounds = {0.1, 0.3},
                 .unserved = {{.why = "it does not fit", .requests = 3, .models = {"m"}}}}};
  plan.late = {{.model = "m", .attainment = 0, .objective = {.ttft = 1s}, .ttft = 2s}};
  return plan;
}

CapacityPlans plans_of(std::vector<KindPlan> kinds) {
  return {.kinds = std::move(kinds), .requests = 1000};
}

TEST(CapacityReport, SaysHowManyWhatLacksAndWhatItCosts) {
  const std::string text = capacity_text(question_for_tests(), plans_of({enough("a", 4, 2.5)}));
  EXPECT_THAT(text, HasSubstr("1000 requests of 1 models in 2.0 h, of which 99.00 %"));
  EXPECT_THAT(text, HasSubstr("2 servers with 8 G have 99.10 % in time"));
  EXPECT_THAT(text, HasSubstr("sure with 3 servers with 12 G"));
  EXPECT_THAT(text, HasSubstr("a network ten times as fast: 97.00 %"));
  EXPECT_THAT(text, HasSubstr("cost: 5.00 an hour, 120 a day"));
  EXPECT_THAT(text, Not(HasSubstr("more is not better")));
}

TEST(CapacityReport, SaysWhyNothingIsEnough) {
  const std::string text = capacity_text(question_for_tests(), plans_of({too_slow()}));
  EXPECT_THAT(text, HasSubstr("not enough: even 64 servers with 512 S have 20.00 % in time"));
  EXPECT_THAT(text, HasSubstr("never served: 3 requests of 1 models, such as m: it does not fit"));
  EXPECT_THAT(text, HasSubstr("its first token takes 2 s at best, and is to take 1 s"));
}

TEST(CapacityReport, TheBestIsTheCheapestOrThatOfTheFewestGpus) {
  const auto question = question_for_tests();
  EXPECT_THAT(capacity_text(question, plans_of({enough("a", 4, 9), enough("b", 8, 5), too_slow()})),
              HasSubstr("best: 2 servers with 16 G (b)"));
  EXPECT_THAT(capacity_text(question, plans_of({enough("a", 4, 9), enough("b", 8, 0)})),
              HasSubstr("best: 2 servers with 8 G (a)"))
      << "not all have prices";
  EXPECT_THAT(capacity_text(question, plans_of({too_slow(), too_slow()})),
              HasSubstr("no kind of server is enough"));
}

TEST(CapacityReport, MoreThatIsWorseIsSaid) {
  KindPlan plan = enough("a", 4, 0);
  plan.sizes[2].attainment = 0.9;
  EXPECT_THAT(capacity_text(question_for_tests(), plans_of({plan})),
              HasSubstr("more is not better throughout: 3 servers with 12 G have 90.00 %"));
}

TEST(CapacityReport, WhatWasNotReplayedToTheEndIsSaid) {
  KindPlan plan = enough("a", 4, 0);
  plan.sizes[0].replayed = 0.034;
  plan.sizes[2].brief = true;
  plan.sizes[2].requests = 250;
  CapacityPlans plans = plans_of({plan});
  plans.stretches = 12;
  plans.whole = false;
  CapacityQuestion question = question_for_tests();
  question.origin = "drawn twice";
  const std::string text = capacity_text(question, plans);
  EXPECT_THAT(text, HasSubstr("too few, known after 3.4 %"));
  EXPECT_THAT(text, HasSubstr("enough, of 250 requests"));
  EXPECT_THAT(text, HasSubstr("each size is asked for 1000 of them, in 12 stretches"));
  EXPECT_THAT(text, HasSubstr("\ndrawn twice\n"));
  EXPECT_THAT(capacity_json(question, plans), HasSubstr(R"("requests":250,"replayed":1})"));
}

TEST(CapacityReport, FilesHaveTheSame) {
  const auto question = question_for_tests();
  EXPECT_THAT(capacity_json(question, plans_of({enough("a", 4, 0), too_slow()})),
              AllOf(HasSubstr(R"("kind":"a","gpu":"G","gpus":4,"servers":2)"),
                    HasSubstr(R"("of":"a network ten times as fast","attainment":0.97)"),
                    HasSubstr(R"("kind":"slow","gpu":"S","gpus":8,"sizes")")));
  EXPECT_THAT(capacity_html(question, plans_of({enough("a<b", 4, 0)}), "heddle plan"),
              AllOf(HasSubstr("a&lt;b"), HasSubstr("<svg"), HasSubstr("99.10 %")));
}

}  // namespace
}  // namespace heddle::cli
