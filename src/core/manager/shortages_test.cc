#include "core/manager/shortages.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kDevice;
using test::TestState;

DeviceReport lacking(std::int64_t sequences, std::int64_t pages) {
  return {.short_sequences = sequences, .short_pages = pages, .short_model = kA};
}

TEST(Shortages, EverySequenceThatWaitsCounts) {
  TestState core;
  core.shortages.heard(kDevice, lacking(2, 6));
  EXPECT_EQ(core.device().shortage.waited, 0) << "it begins";
  EXPECT_EQ(core.device().shortage.model, kA);
  core.pass(3s);
  core.shortages.heard(kDevice, lacking(1, 2));
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 6);
  EXPECT_EQ(core.device().shortage.pages, 2);
  core.pass(1s);
  core.shortages.count(kDevice);
  core.shortages.count(kDevice);
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 7);
}

TEST(Shortages, OnceNobodyWaitsWhatWasWaitedIsForgotten) {
  TestState core;
  core.shortages.heard(kDevice, lacking(2, 6));
  core.pass(3s);
  core.shortages.heard(kDevice, lacking(0, 0));
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 6) << "until now they did";
  core.pass(3s);
  core.shortages.count(kDevice);
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 0);
}

TEST(Shortages, WithItsWorkerTheSequencesAreGone) {
  TestState core;
  core.shortages.heard(kDevice, lacking(2, 6));
  core.pass(3s);
  core.shortages.clear(kDevice);
  EXPECT_EQ(core.device().shortage.sequences, 0);
  EXPECT_EQ(core.device().shortage.pages, 0);
  core.shortages.count(kDevice);
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 0);
}

TEST(Shortages, WhatIsPaidForIsNotPaidAgain) {
  TestState core;
  core.shortages.heard(kDevice, lacking(2, 6));
  core.pass(3s);
  core.shortages.count(kDevice);
  core.shortages.pay(kDevice, 5);
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 1);
  core.shortages.recalled(kDevice, core.state.now + 2s);
  EXPECT_EQ(core.device().shortage.recall_at, core.state.now + 2s);
}

}  // namespace
}  // namespace heddle::core::manager
