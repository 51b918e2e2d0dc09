#include "external/health.h"

#include <gtest/gtest.h>

#include "external/test_engine.h"

namespace heddle::external {
namespace {

std::optional<Error> alive() {
  return std::nullopt;
}

TEST(Health, IsAwaitedThroughAllThatIsNotYet) {
  // Nobody listens, then 503, then 200.
  RunningEngine engine({"--open-after", "0.3", "--healthy-after", "0.3"});
  const auto ready = run(engine.loop, await_healthy(engine.address, "/health", 1min, alive));
  EXPECT_TRUE(ready.has_value()) << ready.error().message;
}

TEST(Health, MayBeAnOpenPort) {
  RunningEngine engine({"--never-healthy"});
  const auto ready = run(engine.loop, await_healthy(engine.address, "", 1min, alive));
  EXPECT_TRUE(ready.has_value()) << ready.error().message;
}

TEST(Health, ThatNeverComesIsSaidWithWhatWasHeard) {
  RunningEngine engine({"--never-healthy"});
  ASSERT_TRUE(run(engine.loop, await_healthy(engine.address, "", 1min, alive)).has_value());
  const auto ready = run(engine.loop, await_healthy(engine.address, "/health", 300ms, alive));
  ASSERT_FALSE(ready.has_value());
  EXPECT_EQ(ready.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(ready.error().message.find("status 503"), std::string::npos) << ready.error().message;
}

TEST(Health, AtAPathThatThereIsNotSaysWhatToSet) {
  RunningEngine engine({"--no-health"});
  const auto ready = run(engine.loop, await_healthy(engine.address, "/health", 1min, alive));
  ASSERT_FALSE(ready.has_value());
  EXPECT_EQ(ready.error().code, Code::kNotFound);
  EXPECT_NE(ready.error().message.find("has no /health; set the model's health_path"),
            std::string::npos)
      << ready.error().message;
}

TEST(Health, OfOneThatDiedIsNotAwaited) {
  boost::asio::io_context loop(1);
  int asked = 0;
  const auto died = [&]() -> std::optional<Error> {
    return ++asked < 3 ? std::nullopt
                       : std::optional(Error{Code::kUnavailable, "it ended with status 3"});
  };
  const auto ready =
      run(loop, await_healthy({.host = "127.0.0.1", .port = free_port()}, "/health", 1min, died));
  ASSERT_FALSE(ready.has_value());
  EXPECT_EQ(ready.error().message, "it ended with status 3");
}

}  // namespace
}  // namespace heddle::external
