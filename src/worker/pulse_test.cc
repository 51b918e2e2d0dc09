#include "worker/pulse.h"

#include <thread>

#include <gtest/gtest.h>

namespace heddle::worker {
namespace {

using namespace std::chrono_literals;
using policy::Doing;

TEST(Pulse, TellsWhatTheThreadIsAtAndThatItGetsOn) {
  Pulse pulse("engine");
  EXPECT_EQ(pulse.read().doing, Doing::kIdle);
  pulse.begin(Doing::kCopy);
  const policy::ThreadPulse first = pulse.read();
  EXPECT_EQ(first.name, "engine");
  EXPECT_EQ(first.doing, Doing::kCopy);
  EXPECT_EQ(pulse.read(), first) << "nothing has happened";
  pulse.get_on();
  EXPECT_NE(pulse.read().progress, first.progress);
  pulse.begin(Doing::kCopy);
  EXPECT_NE(pulse.read().progress, first.progress + 1) << "another of the same is progress";
  pulse.end();
  EXPECT_EQ(pulse.read().doing, Doing::kIdle);
}

TEST(Pulse, ExpectsOfAStepWhatTheLongestOfLateTook) {
  Pulse pulse("engine");
  pulse.begin(Doing::kStep, 5ms);
  EXPECT_EQ(pulse.read().expected, 5ms) << "its pace";
  std::this_thread::sleep_for(20ms);
  pulse.begin(Doing::kWork);
  EXPECT_EQ(pulse.read().expected, Duration{}) << "of other things nothing is expected";
  pulse.begin(Doing::kStep);
  EXPECT_GE(pulse.read().expected, 20ms);
  const Duration longest = pulse.read().expected;
  pulse.begin(Doing::kStep);
  EXPECT_LT(pulse.read().expected, longest) << "it is forgotten by and by";
  EXPECT_GE(pulse.read().expected, longest * 9 / 10);
}

}  // namespace
}  // namespace heddle::worker
