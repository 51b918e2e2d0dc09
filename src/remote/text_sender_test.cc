#include "remote/text_sender.h"

#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <gtest/gtest.h>

#include "net/test_cluster.h"
#include "remote/test_folder.h"

namespace heddle::remote {
namespace {

class TextSenderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("a.json", std::string(kTextPieceMost + 1, 't'));
    folder.write("config.json", "{}");
    sender.emplace(
        loop.get_executor(),
        reader.get_executor(),
        [this](const std::string& model,
               const std::string& digest) -> Result<std::filesystem::path> {
          if (model != "gone" && (model != "m" || digest != "d")) {
            return Error{Code::kNotFound, "no such model"};
          }
          return model == "gone" ? folder.path / "gone" : folder.path;
        },
        [this](const HostToGateway& message) { sent.push_back(message); });
  }

  void run(std::size_t messages) {
    net::run_until(loop, [&] { return sent.size() >= messages; });
  }

  TestFolder folder{};
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy{
      loop.get_executor()};
  boost::asio::thread_pool reader{1};
  std::vector<HostToGateway> sent{};
  std::optional<TextSender> sender{};
};

TEST_F(TextSenderTest, SendsFilesInPieces) {
  ASSERT_TRUE(sender->fetch({.model = "m", .digest = "d"}));
  EXPECT_TRUE(sent.empty()) << "not from within the call";
  run(3);
  const auto& first = std::get<TextFile>(sent[0]);
  EXPECT_EQ(first.name, "a.json");
  EXPECT_EQ(first.bytes.size(), kTextPieceMost);
  EXPECT_FALSE(first.ends);
  const auto& rest = std::get<TextFile>(sent[1]);
  EXPECT_EQ(rest.bytes, "t");
  EXPECT_TRUE(rest.ends);
  EXPECT_FALSE(rest.last);
  const auto& second = std::get<TextFile>(sent[2]);
  EXPECT_EQ(second.model, "m");
  EXPECT_EQ(second.digest, "d");
  EXPECT_EQ(second.name, "config.json");
  EXPECT_EQ(second.bytes, "{}");
  EXPECT_TRUE(second.ends && second.last);
}

TEST_F(TextSenderTest, SaysWhatItDoesNotHaveAndGoesOn) {
  ASSERT_TRUE(sender->fetch({.model = "other", .digest = "d"}));
  ASSERT_TRUE(sender->fetch({.model = "gone", .digest = "d"}));
  ASSERT_TRUE(sender->fetch({.model = "m", .digest = "d"}));
  run(5);
  EXPECT_EQ(std::get<TextFailed>(sent[0]).error.message, "no such model");
  EXPECT_EQ(std::get<TextFailed>(sent[1]).error.code, Code::kNotFound);
  EXPECT_TRUE(std::get<TextFile>(sent[4]).last);
}

TEST_F(TextSenderTest, WaitsForWhoTakesNothing) {
  sender->pause(true);
  ASSERT_TRUE(sender->fetch({.model = "m", .digest = "d"}));
  loop.poll();
  EXPECT_TRUE(sent.empty());
  sender->pause(false);
  run(3);
  EXPECT_EQ(sent.size(), 3U);
}

TEST_F(TextSenderTest, DoesNotRememberEverything) {
  sender->pause(true);
  for (std::size_t i = 0; i < kFetchesMost; ++i) {
    ASSERT_TRUE(sender->fetch({.model = "m", .digest = "d"}));
  }
  EXPECT_EQ(sender->fetch({.model = "m", .digest = "d"}).error().code, Code::kCorrupt);
}

TEST_F(TextSenderTest, SendsNothingOnceItIsGone) {
  ASSERT_TRUE(sender->fetch({.model = "m", .digest = "d"}));
  run(1);
  sender.reset();
  const std::size_t before = sent.size();
  reader.join();
  loop.poll();
  EXPECT_EQ(sent.size(), before);
}

}  // namespace
}  // namespace heddle::remote
