#pragma once

#include <memory>
#include <string>

#include "gateway/fake_engine.h"
#include "gateway/test_gateway.h"

namespace heddle::gateway {

/// A gateway with a model "far/away", alias "far", that a FakeEngine serves.
class ForwardingTest : public GatewayTest {
 protected:
  static constexpr const char* kStreamHead =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";

  ForwardingTest() {
    serving.names.emplace_back("far/away");
    config.models.push_back({.id = "far/away", .aliases = {"far"}});
    config.models.back().engine.emplace();
  }

  /// Starts the engine with its script, and the gateway; the engine runs unless `waits`.
  void start_with(FakeEngine::Script script, bool waits = false) {
    engine = std::make_unique<FakeEngine>(std::move(script));
    if (!waits) {
      serving.engine = address();
    }
    start();
  }
  [[nodiscard]] HttpAddress address() const {
    return {.host = "127.0.0.1", .port = engine->port()};
  }
  config::EngineConfig& engine_config() { return *config.models.back().engine; }

  /// The one request has been handed over and its sink given back.
  [[nodiscard]] bool finished(std::size_t count = 1) {
    return serving.wait([&] { return serving.finished_external.size() == count; });
  }

  static std::string chat(bool stream = false, const std::string& model = "far") {
    return R"({"model":")" + model + R"(","messages":[{"role":"user","content":"hi"}])" +
           (stream ? R"(,"stream":true})" : "}");
  }
  static std::string chunk(const std::string& data) {
    char size[16];
    snprintf(size, sizeof size, "%zx\r\n", data.size());
    return size + data + "\r\n";
  }

  std::unique_ptr<FakeEngine> engine{};
};

}  // namespace heddle::gateway
