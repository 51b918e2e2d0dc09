#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/metrics.h"
#include "gateway/fake_serving.h"
#include "gateway/gateway.h"
#include "gateway/test_client.h"
#include "gateway/test_model.h"
#include "sandbox/inside.h"

namespace heddle::gateway {

/// Compiles grammars where it is called, without a process of their own.
class TrierInPlace final : public sandbox::Trier {
 public:
  Result<void> try_grammar(const sandbox::GrammarTrial& trial) override {
    return bench_.try_grammar(trial, [](std::string_view) {});
  }
  void stop() override {}

 private:
  sandbox::GrammarBench bench_{};
};

/// A gateway on a port of its own before a FakeServing, its loop on a thread of its own. Tests talk
/// to it over sockets.
class GatewayTest : public testing::Test {
 protected:
  GatewayTest() {
    config.listen = {{.host = "127.0.0.1", .port = 0}};
    config.models = {
        {.id = "tiny", .path = model.directory().string(), .aliases = {"alias"}, .name = "Tiny"},
        {.id = "org/name:8b", .path = model.directory().string()}};
    options.version = "1.2.3";
    options.grammars = std::make_shared<TrierInPlace>();
    options.open_text = [](const config::ModelConfig& wanted) {
      return open_model_text(wanted.path, wanted.context);
    };
  }
  ~GatewayTest() override {
    if (thread.joinable()) {
      on_loop([this] { gateway.reset(); });
      work.reset();
      loop.stop();
      thread.join();
    }
  }

  /// Starts the gateway, and its loop, with what the test has put in `config` and `options`.
  void start() {
    Result<std::unique_ptr<Gateway>> started =
        Gateway::start(loop, serving, metrics, config, options);
    ASSERT_TRUE(started) << started.error().message;
    gateway = std::move(started).value();
    port = gateway->addresses()[0].port;
    thread = std::thread([this] { loop.run(); });
  }

  /// Does something on the loop and waits until it is done.
  template <class Work>
  void on_loop(Work act) {
    std::promise<void> done;
    boost::asio::post(loop, [&] {
      act();
      done.set_value();
    });
    done.get_future().wait();
  }

  TestResponse call(const std::string& method,
                    const std::string& path,
                    const std::string& body = {},
                    const std::string& headers = {}) const {
    return TestClient(port).call(method, path, body, headers);
  }
  [[nodiscard]] nlohmann::json ask(const std::string& method,
                                   const std::string& path,
                                   const std::string& body = {}) const {
    return nlohmann::json::parse(call(method, path, body).body);
  }

  /// A chat with one message, and further fields such as R"("n":2)".
  [[nodiscard]] static std::string chat_body(const std::string& more = {},
                                             const std::string& content = "hi") {
    return R"({"model":"tiny","messages":[{"role":"user","content":")" + content + "\"}]" +
           (more.empty() ? "" : "," + more) + "}";
  }

  TestModel model{};
  config::Config config{};
  Gateway::Options options{};
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work =
      boost::asio::make_work_guard(loop);
  FakeServing serving{loop};
  Metrics metrics{};
  std::unique_ptr<Gateway> gateway{};
  std::uint16_t port = 0;
  std::thread thread{};
};

/// The data of the events of a stream, comments left out.
inline std::vector<std::string> events_of(const std::string& stream) {
  std::vector<std::string> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string event = stream.substr(at, end - at);
    if (event.starts_with("data: ")) {
      events.push_back(event.substr(6));
    }
    at = end == std::string::npos ? stream.size() : end + 2;
  }
  return events;
}

}  // namespace heddle::gateway
