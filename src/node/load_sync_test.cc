#include "node/load_sync.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "base/log_tail.h"
#include "history/load_book.h"
#include "remote/load_pieces.h"

namespace heddle::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

/// A host that remembers as remote::HostService does, and notes what it hears.
struct Remembering {
  explicit Remembering(boost::asio::io_context& loop) : loop_(loop) {}

  LoadKeeper keeper(LoadSync& sync, HostId id, const std::string& name) {
    return {.name = name,
            .ask =
                [this, &sync, id](const remote::TellLoads& asked) {
                  ++asks;
                  if (mute) {
                    return;
                  }
                  boost::asio::post(loop_, [this, &sync, id, asked] {
                    remote::Loads answer =
                        remote::piece_from(book, {.model = asked.model, .window = asked.window});
                    if (book.digest() == asked.digest) {
                      answer = {.length = asked.length, .same = true};
                    }
                    if (endless) {
                      const std::string next = std::to_string(10'000 + asks);
                      answer = {.length = asked.length, .models = {{next, {{1, 1, 1}}}}};
                    }
                    sync.hear(id, answer);
                  });
                },
            .tell =
                [this](const remote::Loads& told) {
                  ++tells;
                  book.begin(told.length, told.keep);
                  remote::put(told, book);
                }};
  }

  history::LoadBook book{};
  int asks = 0;
  int tells = 0;
  bool mute = false;
  bool endless = false;  ///< It always has one model more.

 private:
  boost::asio::io_context& loop_;
};

class LoadSyncTest : public ::testing::Test {
 protected:
  LoadSyncTest() {
    records.open("", minutes(5), std::chrono::hours(24));
    records.on_recall([this](const std::set<std::string>& models) { recalled.push_back(models); });
    for (Remembering* host : {&one, &two}) {
      host->book.begin(minutes(5), records.book().keep());
    }
    sync.emplace(loop.get_executor(),
                 records,
                 LoadSyncOptions{.patience = milliseconds(200), .pause = milliseconds(0)});
  }

  void meet(std::uint64_t number, Remembering& host) {
    const HostId id(number);
    sync->meet(id, host.keeper(*sync, id, "h" + std::to_string(number)));
  }
  /// Until nothing is left to do.
  void run() {
    loop.restart();
    loop.run();
  }
  static std::vector<std::string> log_after(std::uint64_t line) {
    std::vector<std::string> said;
    for (const log::Line& each : log::tail(line)) {
      said.push_back(each.text);
    }
    return said;
  }

  boost::asio::io_context loop{1};
  manager::LoadRecords records{};
  std::vector<std::set<std::string>> recalled{};
  Remembering one{loop};
  Remembering two{loop};
  std::optional<LoadSync> sync{};
};

TEST_F(LoadSyncTest, ANewLeaderTakesOverWhatAHostRemembers) {
  const std::uint64_t before = log::tail(0).empty() ? 0 : log::tail(0).back().number;
  for (std::int64_t window = 0; window < 3000; ++window) {
    one.book.put("chat", window, {.mean = 1, .peak = 2});
    one.book.put("code", window, {.mean = 3, .peak = 4});
  }
  meet(1, one);
  run();
  EXPECT_EQ(one.asks, 0) << "the leader has to decide something first";
  sync->settle(true);
  run();
  EXPECT_EQ(records.book().digest(), one.book.digest());
  EXPECT_GT(one.asks, 2) << "in pieces";
  EXPECT_EQ(one.tells, 0) << "it lacks nothing";
  EXPECT_EQ(recalled, (std::vector<std::set<std::string>>{{"chat", "code"}}));
  const std::vector<std::string> said = log_after(before);
  ASSERT_EQ(said.size(), 1U);
  for (const char* part : {"took over past loads", "windows=6000", "models=2", "host=h1"}) {
    EXPECT_NE(said[0].find(part), std::string::npos) << said[0];
  }
  meet(2, two);
  run();
  EXPECT_EQ(two.book.digest(), one.book.digest()) << "a host that is new is told all";
  EXPECT_EQ(two.asks, 1);
  EXPECT_GT(two.tells, 2);
  const int told = two.tells;
  sync->lose(HostId(2));
  meet(2, two);
  run();
  EXPECT_EQ(two.tells, told) << "it has the same";
  EXPECT_EQ(recalled.size(), 1U);
}

TEST_F(LoadSyncTest, OfHostsThatDifferTheGreaterHolds) {
  records.note("chat", 1, {.mean = 1, .peak = 1});
  run();
  one.book.put("chat", 1, {.mean = 2, .peak = 2});
  one.book.put("chat", 2, {.mean = 5, .peak = 5});
  two.book.put("chat", 2, {.mean = 4, .peak = 9});
  two.book.put("chat", 3, {.mean = 1, .peak = 1});
  meet(1, one);
  meet(2, two);
  sync->settle(true);
  run();
  EXPECT_EQ(records.book().size(), 3U);
  EXPECT_EQ(records.book().at("chat", 1)->mean, 2);
  EXPECT_EQ(records.book().at("chat", 2)->mean, 5);
  EXPECT_EQ(two.book.digest(), records.book().digest()) << "it was told what it lacked";
  EXPECT_FALSE(one.book.at("chat", 3)) << "it had its turn before";
  sync->lose(HostId(1));
  meet(1, one);
  run();
  EXPECT_EQ(one.book.digest(), records.book().digest());
}

TEST_F(LoadSyncTest, WindowsThatEndGoToAllHosts) {
  meet(1, one);
  meet(2, two);
  records.note("chat", 7, {.mean = 1, .peak = 1});
  records.note("code", 7, {.mean = 2, .peak = 2});
  run();
  EXPECT_EQ(one.tells, 1) << "together";
  EXPECT_EQ(one.book.digest(), records.book().digest());
  EXPECT_EQ(two.book.digest(), records.book().digest());
  sync->lose(HostId(1));
  records.note("chat", 8, {.mean = 1, .peak = 1});
  run();
  EXPECT_EQ(one.tells, 1);
  EXPECT_EQ(two.tells, 2);
  sync->settle(true);
  run();
  EXPECT_EQ(two.tells, 2) << "it has all that there is";
}

TEST_F(LoadSyncTest, GoesOnToTheNextHostWhereOneDoesNotAnswer) {
  one.mute = true;
  two.book.put("chat", 2, {.mean = 4, .peak = 9});
  meet(1, one);
  meet(2, two);
  sync->settle(true);
  run();
  EXPECT_EQ(records.book().size(), 1U);
  meet(1, one);
  sync->lose(HostId(1));
  run();
  meet(1, one);
  sync.reset();
  run();
  EXPECT_EQ(one.asks, 3) << "and nothing hangs";
}

TEST_F(LoadSyncTest, GivesUpOnAHostThatComesToNoEnd) {
  one.endless = true;
  two.book.put("chat", 3, {.mean = 4, .peak = 9});
  meet(1, one);
  meet(2, two);
  sync->settle(true);
  run();
  EXPECT_EQ(one.asks, 1024);
  EXPECT_EQ(one.tells, 0);
  EXPECT_EQ(records.book().size(), 1025U) << "what it said before is worth something";
  EXPECT_EQ(recalled.size(), 2U);
}

}  // namespace
}  // namespace heddle::node
