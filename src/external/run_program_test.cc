#include "external/run_program.h"

#include <gtest/gtest.h>

#include "external/test_engine.h"

namespace heddle::external {
namespace {

TEST(RunProgram, ReturnsWhatItWrote) {
  const auto said = run_program({"sh", "-c", "echo a; echo b; echo c >&2"}, 1min);
  ASSERT_TRUE(said.has_value()) << said.error().message;
  EXPECT_EQ(*said, "a\nb\n");
}

TEST(RunProgram, SaysHowItFailed) {
  const auto failed = run_program({"sh", "-c", "echo no such image >&2; exit 3"}, 1min);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "sh -c failed with exit status 3: no such image");
  EXPECT_FALSE(run_program({"/no/such/program"}, 1min).has_value());
}

TEST(RunProgram, IsKilledWithWhatItStartedWhenItTakesTooLong) {
  const Scratch scratch;
  const std::string script = "sleep 1000 & echo $! > " + (scratch / "pid") + "; wait";
  const auto late = run_program({"sh", "-c", script}, 500ms);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  const std::string pid = read_small_file(scratch / "pid");
  ASSERT_FALSE(pid.empty());
  EXPECT_TRUE(comes_true([&] { return gone(std::stoi(pid)); }));
}

}  // namespace
}  // namespace heddle::external
