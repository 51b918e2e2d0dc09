#include "remote/peer_caches.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "remote/cache_messages.h"
#include "remote/cache_service.h"
#include "remote/caller.h"
#include "remote/test_cache.h"
#include "remote/test_host.h"

namespace heddle::remote {
namespace {

constexpr const char* kAsked = "acme/small";

class PeerCachesTest : public ::testing::Test {
 protected:
  PeerCachesTest() {
    caches.emplace(loop.get_executor(),
                   net::self_of(cluster.issue(net::Role::kAgent, "h1")),
                   PeerCachesOptions{.silence = std::chrono::milliseconds(300)});
    listener = test_listener(loop,
                             net::self_of(cluster.issue(net::Role::kAgent, "h2")),
                             {net::Role::kAgent},
                             [this](auto link, const net::Peer& peer) {
                               EXPECT_EQ(peer.use, rpc::LinkUse::kFiles);
                               ++links;
                               take(std::move(link), peer);
                             });
    for (std::size_t i = 0; i < text.size(); ++i) {
      text[i] = static_cast<char>((i * 2654435761U) >> 13U);
    }
    object = cache.put(kAsked, text);
  }
  /// Real answers, from the cache.
  void serve() {
    service.emplace(loop.get_executor(), cache.places(), std::make_shared<agent::FetchLink>(0));
    take = [this](auto link, const net::Peer& peer) { service->take(std::move(link), peer); };
  }
  /// Answers that a test makes; nothing is no answer.
  void answer(std::function<std::optional<FromCache>(const ToCache&)> what) {
    says = std::move(what);
    take = [this](auto link, const net::Peer& peer) {
      const std::size_t place = callers.size();
      callers.push_back(std::make_unique<Caller>(
          loop.get_executor(),
          std::move(link),
          peer,
          Caller::Handlers{.on_message = [this, place](const std::string& payload) -> Result<void> {
                             const Result<ToCache> wanted = decode_to_cache(payload);
                             HEDDLE_CHECK(wanted.has_value());
                             if (const auto said = says(*wanted)) {
                               callers[place]->send(encode(*said));
                             }
                             return {};
                           },
                           .on_gone = [](const Error& /*why*/) {}}));
    };
  }
  [[nodiscard]] std::shared_ptr<fetch::Peer> peer() const {
    return caches->peer({.name = "h2", .address = "127.0.0.1", .port = listener->port()});
  }
  /// Calls it in another thread, and turns the loop until it has returned.
  void beside(const std::function<void()>& what) {
    std::atomic<bool> done = false;
    std::jthread thread([&] {
      what();
      boost::asio::post(loop, [&] { done = true; });
    });
    net::run_until(loop, [&] { return done.load(); });
  }
  Result<std::string> read(fetch::Peer& from, fetch::Range range) {
    std::string got;
    const Result<void> came = from.read(
        kAsked,
        object,
        range,
        [&](std::uint64_t at, std::span<const std::byte> bytes) -> Result<void> {
          EXPECT_EQ(at, range.begin + got.size());
          EXPECT_LE(bytes.size(), kCachePieceMost);
          got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return {};
        },
        stop.get_token());
    return came ? Result<std::string>(std::move(got)) : came.error();
  }
  Error failure(fetch::Range range) {
    std::optional<Error> error;
    beside([&] {
      const Result<std::string> came = read(*peer(), range);
      EXPECT_FALSE(came.has_value());
      error = came ? Error{} : came.error();
    });
    return *error;
  }

  net::TestCluster cluster{};
  boost::asio::io_context loop{};
  TestCache cache{};
  std::string text = std::string(5'000'001, '\0');
  fetch::Object object{};
  std::stop_source stop{};
  int links = 0;
  std::function<void(std::unique_ptr<net::HostLink>, const net::Peer&)> take{};
  std::optional<CacheService> service{};
  std::function<std::optional<FromCache>(const ToCache&)> says{};
  std::vector<std::unique_ptr<Caller>> callers{};
  std::unique_ptr<net::Listener> listener{};
  std::optional<PeerCaches> caches{};
};

TEST_F(PeerCachesTest, ReadsWhatAnotherHostHas) {
  serve();
  beside([&] {
    EXPECT_EQ(peer()->name(), "h2");
    const Result<fetch::Listing> listing = peer()->list(kAsked, stop.get_token());
    ASSERT_TRUE(listing) << listing.error().message;
    ASSERT_EQ(listing->objects.size(), 1U);
    EXPECT_EQ(listing->objects[0].identity(), object.identity());
    EXPECT_TRUE(listing->objects[0].url.empty());
    const Result<std::string> all = read(*peer(), {0, text.size()});
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ(*all, text);
    EXPECT_EQ(*read(*peer(), {999, 1000}), text.substr(999, 1));
  });
  EXPECT_EQ(links, 1) << "one link for all";
  EXPECT_EQ(service->given_bytes(), text.size() + 1);
}

TEST_F(PeerCachesTest, ReadsForSeveralAtOnce) {
  serve();
  beside([&] {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        const fetch::Range range{i * 600'000, i * 600'000 + 800'000};
        const Result<std::string> came = read(*peer(), range);
        ASSERT_TRUE(came) << came.error().message;
        EXPECT_EQ(*came, text.substr(range.begin, range.bytes()));
      });
    }
  });
  EXPECT_EQ(links, 1);
}

TEST_F(PeerCachesTest, ARefusalIsPassedOnAndTheLinkStays) {
  serve();
  object.sha256[0] = object.sha256[0] == '0' ? '1' : '0';
  EXPECT_EQ(failure({0, 10}).code, Code::kNotFound);
  EXPECT_EQ(failure({0, 10}).code, Code::kNotFound);
  EXPECT_EQ(links, 1);
}

TEST_F(PeerCachesTest, OneThatIsSilentIsGivenUp) {
  answer([](const ToCache&) { return std::nullopt; });
  const Error error = failure({0, 10});
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("has not answered"), std::string::npos);
  serve();
  beside([&] { EXPECT_EQ(*read(*peer(), {0, 10}), text.substr(0, 10)); });
  EXPECT_EQ(links, 2) << "a new link";
}

TEST_F(PeerCachesTest, OneThatDiesInTheMiddleIsUnavailable) {
  int asked = 0;
  answer([&](const ToCache& wanted) -> std::optional<FromCache> {
    const auto& read = std::get<ReadCached>(wanted);
    if (++asked == 2) {
      boost::asio::post(loop, [this] { callers.clear(); });
      return std::nullopt;
    }
    return CachedBytes{.ask = read.ask, .bytes = text.substr(read.begin, read.bytes)};
  });
  EXPECT_EQ(failure({0, text.size()}).code, Code::kUnavailable);
}

TEST_F(PeerCachesTest, OneThatIsNotThereIsUnavailable) {
  const std::shared_ptr<fetch::Peer> gone = peer();
  listener.reset();
  beside([&] {
    const Result<std::string> came = read(*gone, {0, 10});
    ASSERT_FALSE(came);
    EXPECT_EQ(came.error().code, Code::kUnavailable);
  });
}

TEST_F(PeerCachesTest, AnswersThatCannotBeAreCorrupt) {
  answer([](const ToCache& wanted) -> std::optional<FromCache> {
    return CachedBytes{.ask = std::get<ReadCached>(wanted).ask, .bytes = "short"};
  });
  EXPECT_EQ(failure({0, 10}).code, Code::kCorrupt);
  answer([](const ToCache& wanted) -> std::optional<FromCache> {
    return CachedFiles{.ask = std::get<ReadCached>(wanted).ask};
  });
  EXPECT_EQ(failure({0, 10}).code, Code::kCorrupt);
  answer([](const ToCache&) -> std::optional<FromCache> { return CachedBytes{.ask = AskId(99)}; });
  EXPECT_EQ(failure({0, 10}).code, Code::kCorrupt) << "nobody asked that";
  answer([](const ToCache& wanted) -> std::optional<FromCache> {
    return CachedFiles{.ask = std::get<ListCached>(wanted).ask, .files = {{.name = "../x"}}};
  });
  beside([&] { EXPECT_EQ(peer()->list(kAsked, stop.get_token()).error().code, Code::kCorrupt); });
}

TEST_F(PeerCachesTest, AStopEndsTheWait) {
  answer([](const ToCache&) { return std::nullopt; });
  stop.request_stop();
  EXPECT_EQ(failure({0, 10}).code, Code::kCancelled);
}

TEST_F(PeerCachesTest, OneThatIsDistrustedIsNotAsked) {
  serve();
  peer()->distrust(kAsked);
  EXPECT_EQ(failure({0, 10}).code, Code::kFailedPrecondition);
  EXPECT_EQ(links, 0);
}

TEST_F(PeerCachesTest, WhatIsWaitedForFailsWhenTheHostEnds) {
  answer([](const ToCache&) { return std::nullopt; });
  const std::shared_ptr<fetch::Peer> there = peer();
  std::optional<Result<std::string>> came;
  std::atomic<bool> done = false;
  std::jthread waits([&] {
    came = read(*there, {0, 10});
    boost::asio::post(loop, [&] { done = true; });
  });
  net::run_until(loop, [&] { return !callers.empty(); });
  caches.reset();
  net::run_until(loop, [&] { return done.load(); });
  EXPECT_EQ(came->error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::remote
