#include "gateway/upstream.h"

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

#include "gateway/fake_engine.h"
#include "gateway/task.h"

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;

/// What came of a request.
struct Outcome {
  std::optional<Error> error{};
  UpstreamHead head{};
  std::string body{};
  bool complete = false;
  bool cut_off = false;
  HttpAddress address{};
};

Task<void> exchange(UpstreamPool& pool,
                    core::EngineRoute route,
                    const UpstreamRequest& request,
                    Outcome& outcome) {
  const std::unique_ptr<UpstreamExchange> engine = pool.exchange(std::move(route));
  const Result<void> sent = co_await engine->send(request);
  if (!sent) {
    outcome.cut_off = engine->cut_off();
    outcome.error = sent.error();
    co_return;
  }
  while (!engine->complete()) {
    const auto news = co_await engine->receive(10s);
    if (!news) {
      outcome.error = news.error();
      break;
    }
    outcome.body += engine->take_body();
  }
  outcome.cut_off = engine->cut_off();
  outcome.address = engine->address();
  outcome.complete = engine->complete();
  if (engine->head() != nullptr) {
    outcome.head = *engine->head();
  }
}

class Upstream : public testing::Test {
 protected:
  Outcome ask(const FakeEngine& engine, const UpstreamRequest& request = {.target = "/x"}) {
    return ask(engine.port(), request);
  }
  Outcome ask(std::uint16_t port, const UpstreamRequest& request = {.target = "/x"}) {
    const HttpAddress address{.host = "127.0.0.1", .port = port, .base_path = "/base"};
    return ask(pool, {.address = address}, request);
  }
  Outcome ask(UpstreamPool& from, core::EngineRoute route, const UpstreamRequest& request) {
    Outcome outcome;
    spawn(loop, exchange(from, std::move(route), request, outcome));
    loop.restart();
    while (loop.run_one() > 0 && !outcome.complete && !outcome.error) {
    }
    loop.poll();
    return outcome;
  }

  asio::io_context loop{1};
  UpstreamPool pool{loop, {}};
};

TEST_F(Upstream, ReadsBodiesByLengthByChunksAndToTheEnd) {
  int turn = 0;
  FakeEngine engine([&turn](const FakeEngine::Peer& peer, const std::string&) {
    switch (turn++) {
      case 0:
        return peer.answer(std::string(100'000, 'x'));
      case 1:
        return peer.send(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n"
            "Trailer: X-Sum\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Sum: 1\r\n\r\n");
      default:
        peer.send("HTTP/1.1 200 OK\r\n\r\nall of it");
        return false;
    }
  });
  Outcome outcome = ask(engine);
  EXPECT_EQ(outcome.body, std::string(100'000, 'x'));
  EXPECT_EQ(outcome.head.length, 100'000U);
  outcome = ask(engine);
  EXPECT_EQ(outcome.head.status, 201);
  EXPECT_EQ(outcome.head.reason, "Made");
  EXPECT_EQ(outcome.head.length, std::nullopt);
  EXPECT_EQ(outcome.body, "abcdefg");
  EXPECT_TRUE(outcome.head.headers.empty());
  outcome = ask(engine);
  EXPECT_EQ(outcome.body, "all of it");
  EXPECT_TRUE(outcome.complete);
  EXPECT_EQ(engine.connections(), 1);
  EXPECT_EQ(pool.idle(), 0U);
}

TEST_F(Upstream, AnAnswerThatOthersMightReadDifferentlyIsNone) {
  std::string flood;
  for (int i = 0; i < 100; ++i) {
    flood += "HTTP/1.1 102 Processing\r\n\r\n";
  }
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string chunked = ok + "Transfer-Encoding: chunked\r\n";
  std::string head;
  while (head.size() < (80U << 10U)) {
    head += "A: b\r\n";
  }
  for (const std::string& answer :
       {ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ok + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
        chunked + "Content-Length: 5\r\n\r\n0\r\n\r\n",
        chunked + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        std::string("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        std::string("HTTP/1.1 101 Switching\r\n\r\n") + ok + "Content-Length: 1\r\n\r\nx",
        flood + ok + "Content-Length: 1\r\n\r\nx",
        chunked + "\r\n0\r\n" + head,
        ok + head}) {
    FakeEngine engine(
        [&](const FakeEngine::Peer& peer, const std::string&) { return peer.send(answer); });
    const Outcome outcome = ask(engine);
    ASSERT_TRUE(outcome.error) << answer.substr(0, 100);
    EXPECT_EQ(outcome.error->code, Code::kCorrupt) << outcome.error->message;
    EXPECT_EQ(pool.idle(), 0U);
  }
}

TEST_F(Upstream, SendsWhatItIsGiven) {
  FakeEngine engine([](const FakeEngine::Peer& peer, const std::string&) {
    return peer.answer("{}", "X-A: 1\r\nx-a: 2\r\nConnection: X-Gone\r\nX-Gone: 3\r\n");
  });
  UpstreamRequest request{.target = "/a?b=c", .headers = {{"X-Mine", "yes"}}, .body = "body"};
  const Outcome outcome = ask(engine, request);
  const HttpFields kept{{"X-A", "1"}, {"x-a", "2"}};
  EXPECT_EQ(outcome.head.headers, kept);
  EXPECT_EQ(engine.requests().at(0),
            "POST /base/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(engine.port()) +
                "\r\nX-Mine: yes\r\nContent-Length: 4\r\n\r\nbody");
  request = {.method = "HEAD", .target = "/"};
  EXPECT_TRUE(ask(engine, request).complete);
}

TEST_F(Upstream, KeepsConnectionsAndReplacesThoseThatWereClosed) {
  std::atomic<bool> drop = false;
  FakeEngine engine([&drop](const FakeEngine::Peer& peer, const std::string&) {
    return !drop.exchange(false) && peer.answer("{}");
  });
  EXPECT_TRUE(ask(engine).complete);
  EXPECT_TRUE(ask(engine).complete);
  EXPECT_EQ(engine.connections(), 1);
  engine.close_connections();
  EXPECT_TRUE(ask(engine).complete);
  EXPECT_EQ(engine.connections(), 2);
  // Closed just as the request was on its way: nobody could have seen that before.
  drop = true;
  EXPECT_TRUE(ask(engine).complete);
  EXPECT_EQ(engine.connections(), 3);
  EXPECT_EQ(engine.requests().size(), 5U);
}

TEST_F(Upstream, ANewConnectionThatIsClosedIsAFailure) {
  std::atomic<bool> hard = false;
  FakeEngine engine([&hard](const FakeEngine::Peer& peer, const std::string&) {
    if (hard) {
      peer.reset();
    }
    return false;
  });
  for (int i = 1; i <= 2; ++i, hard = true) {
    const Outcome outcome = ask(engine);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code, Code::kUnavailable);
    EXPECT_EQ(engine.connections(), i);
  }
}

TEST_F(Upstream, AnAnswerThatEndsTooSoonIsAFailure) {
  int turn = 0;
  FakeEngine engine([&turn](const FakeEngine::Peer& peer, const std::string&) {
    peer.send(turn++ == 0 ? "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
                          : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    return false;
  });
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = ask(engine);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code, Code::kUnavailable);
    EXPECT_EQ(outcome.body, "half");
  }
}

TEST_F(Upstream, WhatIsNoHttpIsAFailure) {
  FakeEngine engine([](const FakeEngine::Peer& peer, const std::string&) {
    peer.send("* OK IMAP4 ready\r\n");
    return true;
  });
  EXPECT_EQ(ask(engine).error.value().code, Code::kCorrupt);
}

TEST_F(Upstream, NobodyListens) {
  std::uint16_t port = 0;
  {
    const FakeEngine gone([](const FakeEngine::Peer&, const std::string&) { return false; });
    port = gone.port();
  }
  const Outcome outcome = ask(port);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, Code::kUnavailable);
  EXPECT_NE(outcome.error->message.find("127.0.0.1:" + std::to_string(port)), std::string::npos);
}

TEST_F(Upstream, AnswersBeforeTheRequestIsReadAreTaken) {
  FakeEngine engine([](const FakeEngine::Peer& peer, const std::string&) {
    peer.answer("too large", "Connection: close\r\n", "413 Content Too Large");
    return false;
  });
  const Outcome outcome = ask(engine);
  EXPECT_EQ(outcome.head.status, 413);
  EXPECT_EQ(outcome.body, "too large");
}

Task<void> wait_and_close(asio::io_context& loop,
                          UpstreamPool& pool,
                          std::uint16_t port,
                          std::string& seen) {
  const UpstreamRequest request{.target = "/x"};
  const auto engine = pool.exchange({.address = HttpAddress{.host = "localhost", .port = port}});
  const Result<void> sent = co_await engine->send(request);
  seen += sent ? "sent " : sent.error().message;
  const auto none = co_await engine->receive(1ms);
  seen += none && *none == UpstreamExchange::News::kNone ? "none " : "? ";
  asio::steady_timer timer(loop, 1ms);
  timer.async_wait([&engine](const auto&) { engine->close(); });
  const auto closed = co_await engine->receive(10s);
  seen += !closed && closed.error().code == Code::kCancelled ? "closed" : "?";
}

TEST_F(Upstream, WaitsWithPatienceAndHangsUpAtOnce) {
  std::promise<bool> hung_up;
  FakeEngine engine([&hung_up](const FakeEngine::Peer& peer, const std::string&) {
    hung_up.set_value(peer.hung_up());
    return false;
  });
  std::string seen;
  spawn(loop, wait_and_close(loop, pool, engine.port(), seen));
  loop.run();
  EXPECT_EQ(seen, "sent none closed");
  EXPECT_TRUE(hung_up.get_future().get());
}

/// Engines of other hosts, to which a test carries connections.
class UpstreamByHost : public Upstream {
 protected:
  static constexpr HostId kHost{2};

  /// A connection to the engine, as a link to its host would carry it.
  net::CarriedConnection carry(const FakeEngine& engine) {
    asio::ip::tcp::socket socket(loop);
    socket.connect({asio::ip::address_v4::loopback(), engine.port()});
    return {.socket = Descriptor(socket.release()),
            .address = {.host = "far", .port = 5800, .base_path = "/there"},
            .end = end,
            .idle = [this] { ++idle; }};
  }
  Outcome ask_by_host(const UpstreamRequest& request = {.method = "GET", .target = "/x"}) {
    return ask(by_host, {.model = ModelId(7), .host = kHost}, request);
  }

  std::function<std::variant<net::CarriedConnection, net::CarriedEnd>()> open{};
  std::shared_ptr<std::optional<net::CarriedEnd>> end =
      std::make_shared<std::optional<net::CarriedEnd>>();
  int opened = 0;
  int idle = 0;
  UpstreamPool by_host{loop, {.connect_timeout = 50ms, .carry = [this](HostId, ModelId, auto done) {
                                ++opened;
                                if (open) {
                                  asio::post(loop, [this, done] { done(open()); });
                                }
                              }}};
};

TEST_F(UpstreamByHost, AreAskedAsAnyOtherAndTheirConnectionsKept) {
  std::string asked;
  FakeEngine engine([&](const FakeEngine::Peer& peer, const std::string& request) {
    asked = request;
    return peer.answer("{}");
  });
  open = [&] { return carry(engine); };
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = ask_by_host();
    EXPECT_EQ(outcome.body, "{}");
    EXPECT_EQ(outcome.address.authority(), "far:5800");
    EXPECT_EQ(idle, i + 1);
  }
  EXPECT_EQ(opened, 1);
  EXPECT_TRUE(asked.starts_with("GET /there/x HTTP/1.1\r\nHost: far:5800\r\n")) << asked;
  EXPECT_EQ(by_host.route(ModelId(7), device_id(kHost, 1), {.port = 1}),
            (core::EngineRoute{.model = ModelId(7), .host = kHost}));
  EXPECT_EQ(pool.route(ModelId(7), device_id(kHost, 1), {.port = 1}).address->port, 1);
}

TEST_F(UpstreamByHost, AnAnswerThatIsCutIsNotWholeThoughItsEndLooksLikeOne) {
  FakeEngine engine([&](const FakeEngine::Peer& peer, const std::string&) {
    *end = net::CarriedEnd{.why = {Code::kUnavailable, "gone"}, .cut = true};
    peer.send("HTTP/1.1 200 OK\r\n\r\nhalf of it");
    return false;
  });
  open = [&] { return carry(engine); };
  const Outcome outcome = ask_by_host();
  EXPECT_FALSE(outcome.complete);
  EXPECT_EQ(outcome.error->code, Code::kUnavailable);
  EXPECT_TRUE(outcome.cut_off);
}

TEST_F(UpstreamByHost, SayWhetherTheHostOrTheEngineWasNotReached) {
  for (const bool cut : {true, false}) {
    open = [cut] { return net::CarriedEnd{.why = {Code::kUnavailable, "no way"}, .cut = cut}; };
    const Outcome outcome = ask_by_host();
    EXPECT_EQ(outcome.error->message, "no way");
    EXPECT_EQ(outcome.cut_off, cut);
  }
  open = nullptr;
  EXPECT_TRUE(ask_by_host().cut_off) << "nobody answers";
}

TEST(UpstreamFields, OfOneConnectionAreTakenOff) {
  const HttpFields fields{{"Host", "a"},
                          {"Connection", "close, X-One"},
                          {"x-one", "1"},
                          {"X-Two", "2"},
                          {"TRANSFER-ENCODING", "chunked"},
                          {"Content-Length", "5"},
                          {"TE", "trailers"},
                          {"Accept", "*/*"}};
  const HttpFields kept{{"X-Two", "2"}, {"Accept", "*/*"}};
  EXPECT_EQ(end_to_end(fields), kept);
  EXPECT_EQ(field_value(fields, "accept"), "*/*");
  EXPECT_EQ(field_value(fields, "cookie"), "");
}

}  // namespace
}  // namespace heddle::gateway
