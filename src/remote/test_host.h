#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "host/host_port.h"
#include "net/connector.h"
#include "net/listener.h"
#include "net/test_cluster.h"
#include "remote/messages.h"

/// What tests of this folder have in common: a host that notes what it is told, and peers that say
/// what a test has them say.
namespace heddle::remote {

inline constexpr HostId kHost{3};
inline constexpr DeviceId kDevice = device_id(kHost, 0);
inline constexpr DeviceId kOther = device_id(kHost, 1);
inline constexpr WorkerEpoch kLife = worker_epoch(5, 1);
inline constexpr FrontId kFront{2};
inline constexpr ModelId kModel{7};

/// The request of this number of a front.
inline RequestId request(std::uint64_t number, FrontId front = kFront) {
  return RequestId(first_request(front).value() + number);
}

inline host::HostFacts test_facts() {
  return {.name = "h3",
          .isa = "none",
          .devices = {{.id = kDevice, .name = "cpu0", .pages = 10, .page_bytes = 4096},
                      {.id = kOther, .name = "cpu1", .pages = 20, .page_bytes = 4096}},
          .guest_peers = {.pairs = {{kDevice, kOther}}}};
}

/// Notes what it is told, and says of itself what the test has put there.
class NotingHost final : public host::LocalHostPort {
 public:
  struct Sent {
    DeviceId device{};
    WorkerEpoch epoch{};
    core::WorkerMessage message{};
  };

  void set_models(const std::vector<host::Assignment>& models) override { assigned = models; }
  void set_holders(const std::vector<host::Holder>& all) override { holders = all; }
  void forget_orders() override { ++forgotten; }
  [[nodiscard]] core::ModelsByDevice models() const override { return there; }
  void carry_out(const host::HostOrder& order) override { orders.push_back(order); }
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) override {
    sent.push_back({.device = device, .epoch = epoch, .message = std::move(message)});
  }
  void describe(core::DeviceStatus& device) const override {
    device.steps = 11;
    device.usage.total += device.up ? 4 : 0;
  }
  [[nodiscard]] ledger::PoolUsage host_usage() const override { return {.total = 9, .free = 8}; }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override { return engine; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return trouble; }
  [[nodiscard]] std::optional<HttpAddress> engine_address(ModelId model) const override {
    const auto found = listens.find(model);
    return found == listens.end() ? std::nullopt : std::optional(found->second);
  }

  /// The last message of this kind that a worker was sent; null where there is none.
  template <class T>
  [[nodiscard]] const T* last() const {
    for (auto at = sent.rbegin(); at != sent.rend(); ++at) {
      if (const auto* message = std::get_if<T>(&at->message)) {
        return message;
      }
    }
    return nullptr;
  }

  core::ModelsByDevice there{};
  std::vector<host::Assignment> assigned{};
  std::vector<host::Holder> holders{};
  int forgotten = 0;  ///< Times that what was ordered was.
  std::vector<host::HostOrder> orders{};
  std::vector<Sent> sent{};
  std::vector<core::EngineStatus> engine{};
  std::map<ModelId, HttpAddress> listens{};  ///< Where engines do.
  std::vector<std::string> trouble{};
};

/// What a process of a test has heard, and why its links have ended.
template <class Said>
class TestEar {
 public:
  explicit TestEar(boost::asio::io_context& loop) : loop_(loop) {}

  template <class T>
  [[nodiscard]] const T* last() const {
    for (auto at = heard.rbegin(); at != heard.rend(); ++at) {
      if (const auto* message = std::get_if<T>(&*at)) {
        return message;
      }
    }
    return nullptr;
  }
  /// The next such message after what was heard so far.
  template <class T>
  T next() {
    heard.clear();
    net::run_until(loop_, [this] { return last<T>() != nullptr; });
    return *last<T>();
  }
  /// Why its next link has ended, or will.
  std::string end() {
    net::run_until(loop_, [&] { return ends.size() > ends_; });
    return ends[ends_++];
  }

  std::vector<Said> heard{};
  std::vector<std::string> ends{};

 protected:
  boost::asio::io_context& loop_;

 private:
  std::size_t ends_ = 0;  ///< That end() has told of.
};

/// A process that links to a test's listener and says what it is told to; Said is what it hears.
template <class Said>
class TestCaller : public TestEar<Said> {
 public:
  using TestEar<Said>::heard;
  using TestEar<Said>::ends;
  using Decode = Result<Said> (*)(std::string_view);

  TestCaller(boost::asio::io_context& loop,
             std::uint16_t port,
             const net::Self& self,
             Decode decode)
      : TestEar<Said>(loop),
        connector_(std::make_unique<net::Connector>(
            loop.get_executor(),
            net::Address{.host = "127.0.0.1", .port = port},
            self,
            net::Wanted{.roles = {net::Role::kAgent, net::Role::kManager}},
            net::Connector::Handlers{
                .on_up = [this](const net::Peer&) { ++ups; },
                .on_down = [this](const Error& error) { ends.push_back(error.message); },
                .on_frame =
                    [this, decode](const rpc::Frame& frame) {
                      Result<Said> said = decode(frame.payload);
                      HEDDLE_CHECK(said.has_value());
                      heard.push_back(std::move(*said));
                    }},
            net::ConnectorOptions{.backoff = {.first = std::chrono::milliseconds(1),
                                              .most = std::chrono::milliseconds(4),
                                              .seed = 1}})) {
    net::run_until(loop, [this] { return ups == 1; });
  }

  template <class Message>
  void say(const Message& message) {
    HEDDLE_CHECK(connector_->send(encode(message)).has_value());
  }
  /// Ends its link, and its tries to have one.
  void leave() { connector_.reset(); }

  int ups = 0;

 private:
  std::unique_ptr<net::Connector> connector_;
};

/// Listens for these roles as this process; `on_peer` takes whoever comes.
inline std::unique_ptr<net::Listener> test_listener(
    boost::asio::io_context& loop,
    const net::Self& self,
    std::vector<net::Role> roles,
    std::function<void(std::unique_ptr<net::HostLink>, const net::Peer&)> on_peer) {
  auto opened = net::Listener::open(loop.get_executor(),
                                    {.host = "127.0.0.1"},
                                    self,
                                    std::move(roles),
                                    {.on_peer = std::move(on_peer)});
  HEDDLE_CHECK(opened.has_value());
  return std::move(*opened);
}

}  // namespace heddle::remote
