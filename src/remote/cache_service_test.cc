#include "remote/cache_service.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "fetch/file_lock.h"
#include "fetch/url_cache.h"
#include "remote/cache_messages.h"
#include "remote/test_cache.h"
#include "remote/test_host.h"

namespace heddle::remote {
namespace {

constexpr const char* kCached = "https://h/models/small";

using Asker = TestCaller<FromCache>;

class CacheServiceTest : public ::testing::Test {
 protected:
  void make(std::uint64_t bytes_per_second = 0, const CacheServiceOptions& options = {}) {
    link = std::make_shared<agent::FetchLink>(bytes_per_second);
    service.emplace(loop.get_executor(), cache.places(), link, options);
    listener = test_listener(
        loop,
        net::self_of(cluster.issue(net::Role::kAgent, "h1")),
        {net::Role::kAgent},
        [this](auto taken, const net::Peer& peer) { service->take(std::move(taken), peer); });
    object = cache.put(kCached, text);
  }
  Asker& asker() {
    if (!asker_) {
      net::Self self = net::self_of(cluster.issue(net::Role::kAgent, "h2"));
      self.use = rpc::LinkUse::kFiles;
      asker_.emplace(loop, listener->port(), self, decode_from_cache);
    }
    return *asker_;
  }
  [[nodiscard]] ReadCached read(std::uint64_t begin,
                                std::uint64_t bytes,
                                std::uint64_t ask = 1) const {
    return {.ask = AskId(ask),
            .model = kCached,
            .file = object.name,
            .file_bytes = object.bytes,
            .identity = object.identity(),
            .begin = begin,
            .bytes = bytes};
  }
  void say(const ToCache& message) { asker().say(message); }
  void run(const std::function<bool()>& done) { net::run_until(loop, done); }
  [[nodiscard]] bool held() const {
    return !fetch::FileLock::now(fetch::use_of(store::url_folder(cache.places(), kCached)));
  }

  net::TestCluster cluster{};
  boost::asio::io_context loop{};
  TestCache cache{};
  std::string text = std::string(700'000, 'a') + std::string(300'000, 'b');
  fetch::Object object{};
  std::shared_ptr<agent::FetchLink> link{};
  std::optional<CacheService> service{};
  std::unique_ptr<net::Listener> listener{};

 private:
  std::optional<Asker> asker_{};
};

TEST_F(CacheServiceTest, GivesWhatIsThere) {
  make();
  say(ListCached{.ask = AskId(7), .model = kCached});
  const CachedFiles files = asker().next<CachedFiles>();
  EXPECT_EQ(files.ask, AskId(7));
  ASSERT_EQ(files.files.size(), 1U);
  EXPECT_EQ(files.files[0].sha256, object.sha256);
  say(read(699'999, 2));
  EXPECT_EQ(asker().next<CachedBytes>().bytes, "ab");
  EXPECT_EQ(service->given_bytes(), 2U);
}

TEST_F(CacheServiceTest, RefusesWhatIsNot) {
  make();
  ReadCached other = read(0, 1, 9);
  other.identity = std::string(64, '0');
  say(other);
  const CacheRefusal refusal = asker().next<CacheRefusal>();
  EXPECT_EQ(refusal.ask, AskId(9));
  EXPECT_EQ(refusal.error.code, Code::kNotFound);
  other = read(0, 1);
  other.file = "../small/model.safetensors";
  say(other);
  EXPECT_EQ(asker().next<CacheRefusal>().error.code, Code::kNotFound);
  say(ListCached{.model = "acme/other"});
  EXPECT_EQ(asker().next<CacheRefusal>().error.code, Code::kNotFound);
  EXPECT_EQ(service->given_bytes(), 0U);
}

TEST_F(CacheServiceTest, AnswersInOrderHoweverMuchIsAsked) {
  make(0, {.queued_full = 1});
  for (std::uint64_t ask = 1; ask <= 100; ++ask) {
    say(read(ask * 1000, 400'000, ask));
  }
  run([&] { return asker().heard.size() == 100; });
  for (std::uint64_t ask = 1; ask <= 100; ++ask) {
    const auto* bytes = std::get_if<CachedBytes>(&asker().heard[ask - 1]);
    ASSERT_NE(bytes, nullptr);
    EXPECT_EQ(bytes->ask, AskId(ask));
    EXPECT_EQ(bytes->bytes, text.substr(ask * 1000, 400'000));
  }
}

TEST_F(CacheServiceTest, OneThatAsksForTooMuchIsSentAway) {
  make();
  for (std::uint64_t ask = 0; ask < kAsksMost + 10; ++ask) {
    say(read(0, kCachePieceMost, ask));
  }
  EXPECT_NE(asker().end().find("which is the most"), std::string::npos);
}

TEST_F(CacheServiceTest, HoldsTheModelWhileItIsReadAndNoLonger) {
  make(0, {.held = std::chrono::milliseconds(20)});
  say(read(0, 10));
  (void)asker().next<CachedBytes>();
  EXPECT_TRUE(held());
  run([&] { return !held(); });
}

TEST_F(CacheServiceTest, FetchesOfThisHostThatAreDueGoFirst) {
  make(1000, {.patience = std::chrono::milliseconds(1)});
  const auto own = link->join({.due = Instant(std::chrono::steady_clock::now().time_since_epoch()) +
                                      std::chrono::hours(1)});
  for (std::uint64_t ask = 1; ask <= 3; ++ask) {
    say(read(0, 10, ask));
  }
  run([&] { return asker().heard.size() == 3; });
  for (const FromCache& answer : asker().heard) {
    const auto* refusal = std::get_if<CacheRefusal>(&answer);
    ASSERT_NE(refusal, nullptr);
    EXPECT_EQ(refusal->error.code, Code::kUnavailable);
  }
  link->leave(own);
  say(read(0, 10));
  EXPECT_EQ(asker().next<CachedBytes>().bytes, "aaaaaaaaaa");
}

TEST_F(CacheServiceTest, EndsWhileItReads) {
  make(1);  // One byte a second.
  for (std::uint64_t ask = 1; ask <= 3; ++ask) {
    say(read(0, 100, ask));
  }
  (void)asker().next<CachedBytes>();
  service.reset();
  listener.reset();
}

}  // namespace
}  // namespace heddle::remote
