#include "host/model_files.h"

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::host {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(ModelFiles, WhoAsksWaitsUntilAModelIsKnown) {
  ModelFiles files;
  files.tell({.folders = {{"a", "/models/a"}, {"b", std::nullopt}}, .awaited = {{"b", "acme/b"}}});
  EXPECT_EQ(**files.find("a", 0s), "/models/a");
  EXPECT_FALSE(files.find("c", 0s)->has_value());
  const auto late = files.find("b", 0s);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kUnavailable);
  EXPECT_THAT(late.error().message, HasSubstr("acme/b"));
  std::string found;
  std::jthread waits([&] { found = (**files.find("b", 60s)).string(); });
  files.tell({.folders = {{"b", "/models/b"}}});
  waits.join();
  EXPECT_EQ(found, "/models/b");
  files.tell({.failed = {{"b", Error{Code::kUnavailable, "answered 403"}}}});
  EXPECT_EQ(files.find("b", 0s).error().message, "answered 403");
}

TEST(ModelFiles, NobodyWaitsForOneThatHasGone) {
  ModelFiles files;
  files.tell({.awaited = {{"b", "acme/b"}}});
  std::jthread waits([&] { EXPECT_FALSE(files.find("b", 60s).has_value()); });
  files.end();
}

}  // namespace
}  // namespace heddle::host
