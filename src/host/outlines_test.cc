#include "host/outlines.h"

#include <optional>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "fetch/test_peer.h"
#include "fetch/test_pull.h"

namespace heddle::host {
namespace {

class OutlinesTest : public fetch::TestPull {
 protected:
  OutlinesTest() {
    write("config.json", "{}");
    write("model.safetensors", store::safetensors_text("{}", ""));
  }
  /// What is learnt next.
  Result<fetch::Outline> next() {
    heard_.reset();
    while (!heard_) {
      (void)loop_.run_one();
      loop_.restart();
    }
    return *heard_;
  }

  boost::asio::io_context loop_{};
  std::optional<Result<fetch::Outline>> heard_{};
  Outlines outlines_{loop_.get_executor(),
                     options,
                     [this](const std::string& source, const Result<fetch::Outline>& outline) {
                       EXPECT_EQ(source, name());
                       heard_ = outline;
                     }};
};

TEST_F(OutlinesTest, AsksAndTriesAgain) {
  const auto work = boost::asio::make_work_guard(loop_);
  std::filesystem::rename(source() / "config.json", source() / "config");
  outlines_.want({name()});
  EXPECT_FALSE(next().has_value());
  std::filesystem::rename(source() / "config", source() / "config.json");
  const Result<fetch::Outline> learnt = next();
  ASSERT_TRUE(learnt.has_value()) << learnt.error().message;
  EXPECT_TRUE(learnt->changed);
  outlines_.ask_again(name());
  EXPECT_FALSE(next()->changed);
}

/// Asks a hub that is away.
class AwayTest : public fetch::TestPull {
 protected:
  AwayTest() {
    const std::string closed = fetch::TestServer([](const std::string&) { return ""; }).url("");
    options.environment = fetch::environment_of({{"HF_ENDPOINT", closed}});
    peer_->contents = {{"config.json", "{}"},
                       {"model.safetensors", store::safetensors_text("{}", "")}};
  }

  std::shared_ptr<fetch::TestPeer> peer_ = std::make_shared<fetch::TestPeer>("h2");
};

TEST_F(AwayTest, AnotherHostSaysWhatTheModelIs) {
  boost::asio::io_context loop;
  const auto work = boost::asio::make_work_guard(loop);
  std::vector<Result<fetch::Outline>> heard;
  Outlines outlines(loop.get_executor(),
                    options,
                    [&](const std::string& /*source*/, const Result<fetch::Outline>& outline) {
                      heard.push_back(outline);
                    });
  outlines.want({"acme/small"});
  while (heard.empty()) {
    (void)loop.run_one();
  }
  EXPECT_FALSE(heard[0].has_value());
  outlines.set_peers({{"acme/small", {{.name = "h2"}}}},
                     [&](const core::GroupHost& /*host*/) { return peer_; });
  while (heard.size() < 2) {
    (void)loop.run_one();
  }
  ASSERT_TRUE(heard[1].has_value()) << heard[1].error().message;
  EXPECT_TRUE(is_there(heard[1]->directory / "model.safetensors"));
}

}  // namespace
}  // namespace heddle::host
