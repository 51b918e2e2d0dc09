#include "remote/text_fetcher.h"

#include <chrono>
#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/test_cluster.h"
#include "remote/test_folder.h"

namespace heddle::remote {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr HostId kFirst{1};
constexpr HostId kSecond{2};

/// A fetcher of a gateway with two hosts, which are what the test says.
class TextFetcherTest : public ::testing::Test {
 protected:
  TextFetcherTest() { make(hours(1)); }

  void make(Duration patience) {
    fetcher.emplace(
        loop.get_executor(),
        writer.get_executor(),
        [this](HostId host, const FetchText& wanted) {
          asked.emplace_back(host.value(), wanted.model);
        },
        patience);
    fetcher->set_hosts({kFirst, kSecond});
  }
  void fetch(const std::string& model) {
    fetcher->fetch({.model = model, .digest = "5a"},
                   folder.path / model,
                   [this, model](const Result<void>& how) {
                     ends.push_back(model + ": " + (how ? "done" : how.error().message));
                   });
  }
  void run_asked(std::size_t count) {
    net::run_until(loop, [&] { return asked.size() >= count; });
    EXPECT_EQ(asked.size(), count);
  }
  void run_ended(std::size_t count) {
    net::run_until(loop, [&] { return ends.size() >= count; });
    EXPECT_EQ(ends.size(), count);
  }
  /// The next piece of a file.
  void send(HostId from,
            const std::string& model,
            const std::string& bytes,
            bool ends_file = true,
            bool last = true) {
    EXPECT_TRUE(fetcher->hear(from,
                              TextFile{.model = model,
                                       .digest = "5a",
                                       .name = last ? "last" : "first",
                                       .bytes = bytes,
                                       .ends = ends_file,
                                       .last = last}));
  }
  void refuse(HostId from, const std::string& model, const std::string& why) {
    EXPECT_TRUE(fetcher->hear(
        from, TextFailed{.model = model, .digest = "5a", .error = {Code::kNotFound, why}}));
  }

  using Asked = std::pair<std::uint64_t, std::string>;

  TestFolder folder{};
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy{
      loop.get_executor()};  ///< While the writer is at work.
  boost::asio::thread_pool writer{1};
  std::vector<Asked> asked{};
  std::vector<std::string> ends{};
  std::optional<TextFetcher> fetcher{};
};

TEST_F(TextFetcherTest, PutsTheFilesIntoAFolderThatIsThereWhenAllHaveCome) {
  fetcher->come(kFirst);
  fetch("small");
  EXPECT_TRUE(asked.empty()) << "not from within the call";
  run_asked(1);
  send(kFirst, "small", "one, ", false, false);
  send(kFirst, "small", "two", true, false);
  EXPECT_FALSE(std::filesystem::exists(folder.path / "small"));
  send(kFirst, "small", "{}");
  run_ended(1);
  EXPECT_THAT(ends, ElementsAre("small: done"));
  EXPECT_EQ(folder.read("small/first"), "one, two");
  EXPECT_EQ(folder.read("small/last"), "{}");
}

TEST_F(TextFetcherTest, FetchesOneModelAfterTheOther) {
  fetcher->come(kFirst);
  fetcher->come(kSecond);
  fetch("a");
  fetch("b");
  run_asked(1);
  send(kFirst, "a", "{}");
  run_asked(2);
  send(kFirst, "b", "{}");
  run_ended(2);
  EXPECT_THAT(asked, ElementsAre(Asked{1, "a"}, Asked{1, "b"}));
  EXPECT_THAT(ends, ElementsAre("a: done", "b: done"));
}

TEST_F(TextFetcherTest, AsksTheNextHostWhereOneCannotSend) {
  fetcher->come(kFirst);
  fetcher->come(kSecond);
  fetch("a");
  run_asked(1);
  send(kFirst, "a", "half of", false, false);
  refuse(kFirst, "a", "it is gone");
  run_asked(2);
  EXPECT_EQ(asked[1], (Asked{2, "a"}));
  send(kSecond, "a", "{}");
  run_ended(1);
  EXPECT_THAT(ends, ElementsAre("a: done"));
  EXPECT_FALSE(std::filesystem::exists(folder.path / "a" / "first"));
}

TEST_F(TextFetcherTest, FailsOnceAllHostsHaveSaidThatTheyCannot) {
  fetcher->come(kFirst);
  fetcher->come(kSecond);
  fetch("a");
  run_asked(1);
  refuse(kFirst, "a", "never had it");
  run_asked(2);
  refuse(kSecond, "a", "neither had I");
  run_ended(1);
  EXPECT_THAT(ends, ElementsAre("a: fetch the text of model 'a': host 2: neither had I"));
  EXPECT_FALSE(std::filesystem::exists(folder.path / "a"));
  fetcher->go(kFirst);
  fetcher->go(kSecond);
  fetcher->set_hosts({});
  fetch("b");
  run_ended(2);
  EXPECT_THAT(ends[1], HasSubstr("no host is linked"));
}

TEST_F(TextFetcherTest, WaitsForHostsThatAreAway) {
  fetch("a");
  fetcher->come(kFirst);
  run_asked(1);
  refuse(kFirst, "a", "never had it");
  fetch("b");
  run_asked(2);
  EXPECT_EQ(asked[1], (Asked{1, "b"})) << "nobody waits for what another waits for";
  send(kFirst, "b", "{}");
  run_ended(1);
  fetcher->come(kSecond);
  run_asked(3);
  EXPECT_EQ(asked[2], (Asked{2, "a"}));
  send(kSecond, "a", "{}");
  run_ended(2);
  EXPECT_THAT(ends, ElementsAre("b: done", "a: done"));
}

TEST_F(TextFetcherTest, AsksAHostAgainThatComesAgain) {
  fetcher->come(kFirst);
  fetch("a");
  run_asked(1);
  send(kFirst, "a", "half of", false, false);
  fetcher->go(kFirst);
  fetcher->come(kFirst);
  run_asked(2);
  EXPECT_EQ(asked[1], (Asked{1, "a"}));
  send(kFirst, "a", "{}");
  run_ended(1);
  EXPECT_THAT(ends, ElementsAre("a: done"));
}

TEST_F(TextFetcherTest, WaitsNoLongerThanItsPatience) {
  make(milliseconds(1));
  fetch("a");
  run_ended(1);
  EXPECT_THAT(ends, ElementsAre("a: fetch the text of model 'a': no host is linked"));
}

TEST_F(TextFetcherTest, AsksAnotherHostInPlaceOfOneThatHasGone) {
  fetcher->come(kFirst);
  fetcher->come(kSecond);
  fetch("a");
  run_asked(1);
  send(kFirst, "a", "half of", false, false);
  fetcher->go(kFirst);
  run_asked(2);
  EXPECT_EQ(asked[1], (Asked{2, "a"}));
  send(kSecond, "a", "{}");
  run_ended(1);
  EXPECT_THAT(ends, ElementsAre("a: done"));
  EXPECT_FALSE(std::filesystem::exists(folder.path / "a" / "first"));
}

TEST_F(TextFetcherTest, WritesNothingOutsideItsFolder) {
  fetcher->set_hosts({kFirst});
  fetcher->come(kFirst);
  fetch("a");
  run_asked(1);
  EXPECT_TRUE(fetcher->hear(
      kFirst, TextFile{.model = "a", .digest = "5a", .name = "../x", .ends = true, .last = true}));
  run_ended(1);
  EXPECT_THAT(ends[0], HasSubstr("names without a slash"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST_F(TextFetcherTest, FailsWhereFilesCannotBeWritten) {
  folder.write("a", "a file, and no folder");
  fetcher->set_hosts({kFirst});
  fetcher->come(kFirst);
  fetch("a/b");
  run_asked(1);
  send(kFirst, "a/b", "{}", true, false);
  send(kFirst, "a/b", "{}");
  run_ended(1);
  EXPECT_THAT(ends[0], HasSubstr("a/b.part"));
}

TEST_F(TextFetcherTest, TakesOnlyWhatItHasAskedFor) {
  const TextFile piece{.model = "a", .digest = "5a", .name = "x", .ends = true, .last = true};
  EXPECT_FALSE(fetcher->hear(kFirst, piece)) << "nobody has asked for anything";
  fetcher->come(kFirst);
  fetcher->come(kSecond);
  fetch("a");
  run_asked(1);
  EXPECT_FALSE(fetcher->hear(kSecond, piece)) << "another was asked";
  EXPECT_FALSE(fetcher->hear(kFirst, TextFile{.model = "b", .digest = "5a", .name = "x"}));
  EXPECT_FALSE(fetcher->hear(kFirst, TextFile{.model = "a", .digest = "5b", .name = "x"}));
  EXPECT_TRUE(fetcher->hear(kFirst, piece));
  const Result<void> late = fetcher->hear(kFirst, piece);
  ASSERT_FALSE(late) << "all have come";
  EXPECT_EQ(late.error().message,
            "it sends text of model 'a', digest '5a', for which it was not asked");
  run_ended(1);
}

TEST_F(TextFetcherTest, LeavesNothingIncompleteBehind) {
  fetcher->come(kFirst);
  fetch("a");
  run_asked(1);
  send(kFirst, "a", "half of", false, false);
  fetcher.reset();
  writer.join();
  loop.poll();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
  EXPECT_TRUE(ends.empty());
}

TEST_F(TextFetcherTest, CallsNobodyOnceItIsGone) {
  fetcher->come(kFirst);
  fetch("a");
  run_asked(1);
  send(kFirst, "a", "{}");
  fetcher.reset();
  writer.join();
  loop.poll();
  EXPECT_TRUE(ends.empty());
}

}  // namespace
}  // namespace heddle::remote
