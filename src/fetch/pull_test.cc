#include "fetch/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/test_source.h"
#include "fetch/url_cache.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Keeps what it hears.
class TestWatch final : public PullWatch {
 public:
  void waits() override { ++waited; }
  void removed(const std::vector<std::string>& models) override { gone = models; }
  void begins(std::span<const Job> files, std::span<const Object> others) override {
    begun = files.size();
    left_out = others.size();
  }
  void moved(std::size_t /*file*/, std::uint64_t bytes) override { bytes_seen = bytes; }
  void checking(std::size_t /*file*/) override {}
  void came(std::size_t /*file*/) override { ++kept; }
  void retries(const std::string& /*why*/, Duration /*wait*/) override {}

  int waited = 0;
  int kept = 0;
  std::size_t begun = 0;
  std::size_t left_out = 0;
  std::uint64_t bytes_seen = 0;
  std::vector<std::string> gone{};
};

class PullTest : public testing::Test {
 protected:
  PullTest() {
    options.places = {
        .base = root() / "base", .hub_cache = root() / "hub", .url_cache = root() / "own"};
    options.environment = environment_of({});
    options.source = quick();
    options.transfer = {.connections = 2, .piece_bytes = 1000};
    store::write_text(root() / "src/config.json", "{}");
    store::write_text(root() / "src/model.safetensors", pattern(5000));
    store::write_text(root() / "src/model.gguf", "x");
  }
  Result<Pulled> run() { return pull(name(), options, watch, stop.get_token()); }
  [[nodiscard]] std::string name() const { return "file://" + (root() / "src").string(); }
  [[nodiscard]] const fs::path& root() const { return directory_.path(); }

 private:
  store::TempDirectory directory_{};

 protected:
  PullOptions options{};
  TestWatch watch{};
  std::stop_source stop{};
};

TEST_F(PullTest, PutsAModelWhereItIsFound) {
  const Result<Pulled> pulled = run();
  ASSERT_TRUE(pulled.has_value()) << pulled.error().message;
  EXPECT_EQ(pulled->files, 2U);
  EXPECT_EQ(pulled->bytes, 5002U);
  EXPECT_EQ(pulled->fetched_bytes, 5002U);
  EXPECT_EQ(watch.begun, 2U);
  EXPECT_EQ(watch.left_out, 1U);
  EXPECT_EQ(watch.kept, 2);
  EXPECT_EQ(*store::find_model(name(), options.places), pulled->directory);
  EXPECT_EQ(*read_text(pulled->directory / "model.safetensors", 10'000), pattern(5000));
  EXPECT_EQ(run()->fetched_bytes, 0U);
  store::write_text(root() / "src/config.json", "{ }");
  EXPECT_EQ(run()->fetched_bytes, 3U);
}

TEST_F(PullTest, AnotherPullIsWaitedFor) {
  const auto held = open_url_place(name(), options.places, [] {}, {});
  ASSERT_TRUE(held.has_value());
  stop.request_stop();
  EXPECT_EQ(run().error().code, Code::kCancelled);
}

TEST_F(PullTest, TheBudgetIsKept) {
  ASSERT_TRUE(run().has_value());
  options.budget = 20'000;
  const fs::path other = root() / "other";
  fs::create_directories(other);
  fs::copy(root() / "src", other);
  const Result<Pulled> second = pull("file://" + other.string(), options, watch, stop.get_token());
  ASSERT_TRUE(second.has_value()) << second.error().message;
  EXPECT_THAT(watch.gone, testing::ElementsAre(name()));
  options.budget = 1000;
  const Result<Pulled> third = run();
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, Code::kResourceExhausted);
  EXPECT_THAT(third.error().message, HasSubstr("do not fit into the budget of 1000 B"));
}

TEST_F(PullTest, WhatTheDiskCannotHoldIsNotBegun) {
  // A file with a hole, larger than any disk here.
  std::error_code failure;
  fs::resize_file(root() / "src/model.safetensors", std::uintmax_t{1} << 43U, failure);
  if (failure) {
    GTEST_SKIP() << "no such file can be here: " << failure.message();
  }
  const Result<Pulled> pulled = run();
  ASSERT_FALSE(pulled.has_value());
  EXPECT_EQ(pulled.error().code, Code::kResourceExhausted);
  EXPECT_THAT(pulled.error().message, HasSubstr("needs 8.00 TiB more, and the disk of "));
  EXPECT_EQ(watch.begun, 0U);
}

TEST_F(PullTest, SaysWhatIsNoModel) {
  EXPECT_EQ(pull("a b", options, watch, {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(pull("file:///no/such", options, watch, {}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace heddle::fetch
