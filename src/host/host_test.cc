#include "host/host.h"

#include <algorithm>
#include <filesystem>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "external/test_engine.h"

namespace heddle::host {
namespace {

using external::run_until;

constexpr std::size_t kPage = 1U << 20U;
constexpr DeviceId kDevice{3};
constexpr ModelId kEngine{7};

/// A host with a device of 300 MiB, whose worker is this test's own program, and an engine that may
/// have 200 MiB of it.
class HostTest : public testing::Test {
 protected:
  HostTest() {
    HostSetup setup{.agent = {.page_bytes = kPage, .host_pages = 2, .event_log = scratch_ / "log"},
                    .engines = {.page_bytes = kPage, .record_directory = scratch_ / "records"}};
    setup.agent.devices.push_back({.id = kDevice, .name = "cpu3", .pages = 300});
    auto host = Host::create(
        loop_.get_executor(),
        std::move(setup),
        {.on_event = [this](const core::ManagerEvent& event) { hear(event); },
         .on_tokens =
             [this](DeviceId device, WorkerEpoch epoch, const auto& tokens) {
               EXPECT_EQ(device, kDevice);
               EXPECT_EQ(epoch, up_);
               tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
             },
         .on_told = [this](DeviceId /*device*/, ModelId model) { told_.push_back(model); },
         .silent_since = [](ModelId /*model*/) { return std::nullopt; }});
    HEDDLE_CHECK(host.has_value());
    host_ = std::move(*host);
    config::EngineConfig engine = engine_config(scratch_, {"--anonymous-mib", "64", "--any-model"});
    engine.kind = spec::EngineKind::kVllm;
    host_->set_models({.engines = {.engines = {{.model = kEngine, .device = kDevice, .pages = 200}},
                                   .host_pages = 100},
                       .configured = {{.model = kEngine, .name = "alpha", .config = engine}}});
    host_->start();
    HEDDLE_CHECK(run_until(loop_, [this] { return up_.has_value(); }));
  }

  void hear(const core::ManagerEvent& event) {
    if (const auto* up = std::get_if<core::WorkerUp>(&event)) {
      up_ = up->epoch;
    } else if (const auto* engine = std::get_if<core::EngineSaid>(&event)) {
      news_.push_back(engine->news);
    }
  }
  [[nodiscard]] bool await(core::EngineNews news) {
    return run_until(loop_,
                     [&] { return std::find(news_.begin(), news_.end(), news) != news_.end(); });
  }
  [[nodiscard]] std::int64_t lent() const {
    core::DeviceStatus status{.id = kDevice, .up = true};
    host_->describe(status);
    return status.usage.total;  // The worker of this test counts none of its own.
  }

  external::Scratch scratch_{};
  boost::asio::io_context loop_{1};
  std::optional<WorkerEpoch> up_{};
  std::vector<core::TokenEvent> tokens_{};
  std::vector<ModelId> told_{};
  std::vector<core::EngineNews> news_{};
  std::unique_ptr<Host> host_{};
};

TEST_F(HostTest, TokensNameTheLifeThatTheyComeFrom) {
  host_->send(kDevice, *up_, core::Submit{.request = RequestId(5)});
  ASSERT_TRUE(run_until(loop_, [this] { return !tokens_.empty(); }));
  EXPECT_EQ(tokens_[0].request, RequestId(5));
}

TEST_F(HostTest, AnEngineBorrowsFromTheAgentAndNobodyElseIsAsked) {
  host_->carry_out(
      core::LoadOn{.device = kDevice, .model = kEngine, .basis = {.epoch = *up_, .version = 0}});
  EXPECT_EQ(told_, std::vector{kEngine});
  ASSERT_TRUE(await(core::EngineNews::kServing));
  EXPECT_EQ(lent(), 200);
  EXPECT_TRUE(host_->engine_address(kEngine).has_value());

  host_->carry_out(core::EvictFrom{.device = kDevice, .model = kEngine, .free_pages = 200});
  ASSERT_TRUE(await(core::EngineNews::kEnded));
  EXPECT_EQ(lent(), 0);
}

TEST_F(HostTest, BothCoresAreLogged) {
  host_.reset();
  EXPECT_GT(std::filesystem::file_size(scratch_ / "log.agent"), 0U);
  EXPECT_GT(std::filesystem::file_size(scratch_ / "log.engines"), 0U);
}

}  // namespace
}  // namespace heddle::host
