#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/clock.h"
#include "remote/host_service.h"
#include "remote/test_host.h"

/// What a token's way takes from an agent to a gateway on another host: from the moment when the
/// agent hears of it until the gateway has it, over TLS on loopback, between two threads. Beside it
/// a byte over plain TCP between two threads, which is what the network itself takes.
///
/// usage: token_way [TOKENS [PAUSE_US]]
namespace heddle::remote {
namespace {

using boost::asio::ip::tcp;

double microseconds(Duration span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

void row(const char* what, std::vector<Duration> all) {
  std::sort(all.begin(), all.end());
  const auto at = [&](std::size_t part) {
    return microseconds(all[(all.size() - 1) * part / 100]);
  };
  std::printf("%-44s %8.1f %8.1f %8.1f\n", what, at(50), at(95), at(99));
}

/// One byte from one thread to another, so many times; both wait for it in the kernel.
std::vector<Duration> network(int times, Duration pause) {
  boost::asio::io_context loop{1};
  tcp::acceptor acceptor(loop, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  tcp::socket to(loop);
  to.connect(acceptor.local_endpoint());
  tcp::socket from = acceptor.accept();
  to.set_option(tcp::no_delay(true));
  std::vector<Instant> sent(static_cast<std::size_t>(times));
  std::vector<Duration> all(sent.size());
  std::thread hears([&] {
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::array<char, 1> byte{};
      boost::asio::read(from, boost::asio::buffer(byte));
      all[i] = steady_now() - sent[i];
    }
  });
  for (Instant& at : sent) {
    std::this_thread::sleep_for(pause);
    at = steady_now();
    boost::asio::write(to, boost::asio::buffer("x", 1));
  }
  hears.join();
  return all;
}

/// An agent with one worker, in a thread of its own.
class Agent {
 public:
  explicit Agent(net::TestCluster& cluster) {
    service_.emplace(
        loop_.get_executor(), host_, kHost, test_facts(), HostServiceHooks{}, HostServiceOptions{});
    listener_ = test_listener(
        loop_,
        net::self_of(cluster.issue(net::Role::kAgent, "h3")),
        {net::Role::kGateway},
        [this](auto link, const auto& peer) { service_->take(std::move(link), peer); });
    service_->heard(core::WorkerUp{.device = kDevice, .epoch = kLife});
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Agent() {
    boost::asio::post(loop_, [this] {
      listener_.reset();
      service_.reset();
      busy_.reset();
    });
    thread_.join();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }
  /// A worker has produced the token of this position.
  void produce(RequestId id, std::int64_t position, Instant& at) {
    boost::asio::post(loop_, [this, id, position, &at] {
      at = steady_now();
      service_->tokens(kDevice, kLife, {{.request = id, .position = position, .token = 5}});
    });
  }

 private:
  boost::asio::io_context loop_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy_{
      loop_.get_executor()};
  NotingHost host_{};
  std::optional<HostService> service_{};
  std::unique_ptr<net::Listener> listener_{};
  std::thread thread_{};
};

std::vector<Duration> tokens(int times, Duration pause) {
  net::TestCluster cluster;
  Agent agent(cluster);
  boost::asio::io_context loop{1};
  std::vector<Instant> produced(static_cast<std::size_t>(times));
  std::vector<Duration> all(produced.size());
  std::size_t come = 0;
  bool linked = false;
  net::Connector gateway(
      loop.get_executor(),
      net::Address{.host = "127.0.0.1", .port = agent.port()},
      net::self_of(cluster.issue(net::Role::kGateway, "g1")),
      net::Wanted{.roles = {net::Role::kAgent}},
      net::Connector::Handlers{
          .on_up = [](const net::Peer&) {},
          .on_down = [](const Error&) { std::exit(1); },
          .on_frame =
              [&](const rpc::Frame& frame) {
                const Result<HostToGateway> said = decode_host_to_gateway(frame.payload);
                linked = linked || (said.has_value() && std::holds_alternative<Lives>(*said));
                if (said.has_value() && std::holds_alternative<core::WorkerSaid>(*said)) {
                  all[come] = steady_now() - produced[come];
                  ++come;
                }
              }});
  net::run_until(loop, [&] { return linked; });
  core::Submit submit{.request = request(1), .model = kModel, .prompt = {1}};
  submit.choices.push_back({.params = {.max_tokens = times + 1}});
  HEDDLE_CHECK(gateway
                   .send(encode(GatewayToHost(core::TellWorker{
                       .device = kDevice, .epoch = kLife, .message = std::move(submit)})))
                   .has_value());
  loop.run_for(std::chrono::milliseconds(200));
  std::thread worker([&] {
    for (int i = 0; i < times; ++i) {
      std::this_thread::sleep_for(pause);
      agent.produce(request(1), i, produced[static_cast<std::size_t>(i)]);
    }
  });
  net::run_until(loop, [&] { return come == all.size(); });
  worker.join();
  return all;
}

}  // namespace
}  // namespace heddle::remote

int main(int argc, char** argv) {
  const int times = argc > 1 ? std::atoi(argv[1]) : 5000;
  const auto pause = std::chrono::microseconds(argc > 2 ? std::atoi(argv[2]) : 1000);
  std::printf("%-44s %8s %8s %8s\n", "[µs]", "p50", "p95", "p99");
  heddle::remote::row("a byte over TCP", heddle::remote::network(times, pause));
  heddle::remote::row("a token, agent to gateway", heddle::remote::tokens(times, pause));
}
