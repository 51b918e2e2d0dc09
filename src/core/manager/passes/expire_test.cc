#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kDevice;
using test::TestState;

/// A request for the model, which has so much time.
RequestId ask(TestState& core, std::uint64_t number, Duration time) {
  core.queues.arrive({.request = RequestId(number),
                      .model = kA,
                      .prompt_tokens = 4,
                      .max_tokens = 4,
                      .patience = time});
  return RequestId(number);
}

TEST(Expire, ARequestThatWaitsFailsAtItsDeadlineAndNotBefore) {
  TestState core;
  const RequestId id = ask(core, 1, 5s);
  core.pass(4999ms);
  expire(core.parts);
  EXPECT_TRUE(core.failed().empty());
  core.pass(1ms);
  expire(core.parts);
  ASSERT_EQ(core.failed(), std::vector{id});
  EXPECT_EQ(core.all<FailRequest>()[0].error.code, Code::kDeadlineExceeded);
  EXPECT_TRUE(core.state.requests.empty());
}

TEST(Expire, ARequestThatRunsFailsToo) {
  TestState core;
  core.serve(kA);
  const RequestId id = ask(core, 1, 5s);
  core.queues.send(id, kDevice, std::nullopt);
  core.pass(5s);
  expire(core.parts);
  EXPECT_EQ(core.failed(), std::vector{id});
  EXPECT_TRUE(core.at(kA).in_flight.empty());
}

TEST(Expire, AllWhoseTimeIsUpFailAndTheOthersGoOn) {
  TestState core;
  const RequestId late = ask(core, 1, 7s);
  const RequestId first = ask(core, 2, 5s);
  const RequestId second = ask(core, 3, 6s);
  core.pass(6s);
  expire(core.parts);
  EXPECT_EQ(core.failed(), (std::vector{first, second}));
  EXPECT_TRUE(core.state.requests.contains(late));
}

TEST(Expire, WakesForTheNextDeadlineAndForNothingElse) {
  TestState core;
  core.wait(kA);
  expire(core.parts);
  EXPECT_FALSE(core.wake()) << "it has no deadline";
  ask(core, 100, 7s);
  ask(core, 101, 5s);
  expire(core.parts);
  EXPECT_EQ(core.wake(), core.state.now + 5s);
}

TEST(Expire, WhoEndedInTimeDoesNotFail) {
  TestState core;
  core.finish(ask(core, 1, 5s));
  core.pass(5s);
  expire(core.parts);
  EXPECT_TRUE(core.failed().empty());
}

}  // namespace
}  // namespace heddle::core::manager
