#include "fetch/peer_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/rng.h"
#include "fetch/test_peer.h"
#include "fetch/test_source.h"
#include "fetch/transfer.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

const std::string kFile = "model.safetensors";

class PeerSourceTest : public testing::Test {
 protected:
  void make(std::size_t peer_count) {
    content = pattern(10'000);
    auto origin = std::make_unique<TestSource>();
    auto lister = std::make_unique<TestSource>();
    origin->contents[kFile] = lister->contents[kFile] = content;
    origin_ = origin.get();
    lister_ = lister.get();
    PeerSource::Setup setup{.model = "acme/small",
                            .origin = std::move(origin),
                            .lister = std::move(lister),
                            .now = [this] { return now; },
                            .on_failure = [this](const std::string& why) { heard.push_back(why); }};
    for (std::size_t i = 0; i < peer_count; ++i) {
      peers.push_back(std::make_shared<TestPeer>("h" + std::to_string(i + 1)));
      peers.back()->contents[kFile] = content;
      setup.peers.push_back(peers.back());
    }
    source.emplace(std::move(setup));
  }
  [[nodiscard]] Object object() const { return origin_->object(kFile); }
  /// What comes of a range, where that is no error.
  Result<std::string> read(Range range) {
    std::string text;
    const Result<void> came = source->read(
        object(),
        range,
        [&](std::uint64_t at, std::span<const std::byte> bytes) -> Result<void> {
          EXPECT_EQ(at, range.begin + text.size()) << "each byte once, in order";
          text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return take();
        },
        stop.get_token());
    return came ? Result<std::string>(std::move(text)) : came.error();
  }
  void expect_right(Range range) {
    const Result<std::string> text = read(range);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, content.substr(range.begin, range.bytes()));
  }

  std::string content{};
  TestSource* origin_ = nullptr;
  TestSource* lister_ = nullptr;
  std::vector<std::shared_ptr<TestPeer>> peers{};
  std::optional<PeerSource> source{};
  Instant now{std::chrono::hours(1)};
  std::vector<std::string> heard{};
  std::function<Result<void>()> take = [] { return Result<void>(); };
  std::stop_source stop{};
};

TEST_F(PeerSourceTest, RangesComeFromPeersInTurn) {
  make(2);
  for (std::uint64_t at = 0; at < 4000; at += 1000) {
    expect_right({at, at + 1000});
  }
  EXPECT_EQ(peers[0]->reads, 2);
  EXPECT_EQ(peers[1]->reads, 2);
  EXPECT_EQ(origin_->reads, 0);
  EXPECT_TRUE(heard.empty());
}

TEST_F(PeerSourceTest, WhatOneRefusesAnotherGivesAndItIsNotAskedForThatFileAgain) {
  make(2);
  peers[0]->contents.clear();
  expect_right({0, 1000});
  expect_right({1000, 2000});
  expect_right({2000, 3000});
  EXPECT_EQ(peers[0]->reads, 1);
  EXPECT_EQ(peers[1]->reads, 3);
  EXPECT_EQ(origin_->reads, 0);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_THAT(heard[0], HasSubstr("host h1 does not give model.safetensors"));
}

TEST_F(PeerSourceTest, WhatAPeerDoesNotFinishTheNextOneGoesOnWith) {
  make(2);
  peers[0]->dies_after = 300;
  expect_right({1000, 2000});
  EXPECT_EQ(peers[1]->asked, (std::vector<Range>{{1300, 2000}}));
  EXPECT_EQ(origin_->reads, 0);
  peers[1]->dies_after = 0;
  Range asked{};
  origin_->before = [&](const Object&, Range range) {
    asked = range;
    return Result<void>();
  };
  expect_right({2000, 3000});
  EXPECT_EQ(asked, (Range{2000, 3000})) << "the first one is left alone for a while";
  EXPECT_EQ(peers[0]->reads, 1);
}

TEST_F(PeerSourceTest, OneThatFailedIsAskedAgainLaterAndNotForEver) {
  make(1);
  peers[0]->dies_after = 0;
  for (int i = 0; i < 10; ++i) {
    expect_right({0, 1000});
    now += std::chrono::seconds(6);
  }
  EXPECT_EQ(peers[0]->reads, 3);
  EXPECT_EQ(origin_->reads, 10);
}

TEST_F(PeerSourceTest, OneThatEndsEarlyIsNotAskedAgain) {
  make(1);
  peers[0]->truncates = 100;
  expect_right({0, 1000});
  now += std::chrono::hours(1);
  expect_right({0, 1000});
  EXPECT_EQ(peers[0]->reads, 1);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_THAT(heard[0], HasSubstr("ended early"));
}

TEST_F(PeerSourceTest, WhatTheTakerSaysEndsItAndNobodyElseIsAsked) {
  make(2);
  take = [] { return Error{Code::kCancelled, "that is enough"}; };
  EXPECT_EQ(read({0, 1000}).error().message, "that is enough");
  EXPECT_EQ(peers[0]->reads + peers[1]->reads + origin_->reads, 1);
  take = [] { return Result<void>(); };
  expect_right({0, 1000});
  EXPECT_EQ(origin_->reads, 0);
}

TEST_F(PeerSourceTest, AStopEndsIt) {
  make(1);
  stop.request_stop();
  EXPECT_EQ(read({0, 1000}).error().code, Code::kCancelled);
  EXPECT_EQ(origin_->reads, 0);
}

TEST_F(PeerSourceTest, WhatNothingIdentifiesComesFromTheSource) {
  make(1);
  Object unknown = object();
  unknown.sha256.clear();
  unknown.validator.clear();
  EXPECT_TRUE(source->read(
      unknown,
      {0, 10},
      [](std::uint64_t, std::span<const std::byte>) { return Result<void>(); },
      stop.get_token()));
  EXPECT_EQ(peers[0]->reads, 0);
  EXPECT_EQ(origin_->reads, 1);
}

TEST_F(PeerSourceTest, AServerWithoutRangesGoesOnWhereAPeerEnded) {
  make(1);
  origin_->ignores_ranges = true;
  peers[0]->dies_after = 700;
  expect_right({0, content.size()});
  EXPECT_EQ(origin_->reads, 2) << "for the rest, and for all";
}

TEST_F(PeerSourceTest, TheSourceSaysWhatThereIs) {
  make(1);
  peers[0]->contents["other"] = "x";
  const Result<Listing> listing = source->list(stop.get_token());
  ASSERT_TRUE(listing);
  EXPECT_EQ(listing->objects.size(), 1U);
}

/// A source that is away.
class AwaySource final : public Source {
 public:
  explicit AwaySource(Code code) : code_(code) {}
  Result<Listing> list(const std::stop_token& /*stop*/) override {
    return Error{code_, "it does not answer"};
  }
  Result<void> read(const Object& /*object*/,
                    Range /*range*/,
                    const Sink& /*sink*/,
                    const std::stop_token& /*stop*/) override {
    return Error{code_, "it does not answer"};
  }

 private:
  Code code_;
};

TEST_F(PeerSourceTest, WhereTheSourceIsAwayAPeerSaysWhatThereIsAndGivesIt) {
  make(2);
  peers[0]->contents.clear();
  PeerSource away({.model = "acme/small",
                   .origin = std::make_unique<AwaySource>(Code::kUnavailable),
                   .lister = std::make_unique<AwaySource>(Code::kUnavailable),
                   .peers = {peers[0], peers[1]},
                   .now = [this] { return now; }});
  const Result<Listing> listing = away.list(stop.get_token());
  ASSERT_TRUE(listing) << listing.error().message;
  ASSERT_EQ(listing->objects.size(), 1U);
  const Object& object = listing->objects[0];
  std::string text(object.bytes, '\0');
  ASSERT_TRUE(fill(away, object, 0, std::as_writable_bytes(std::span(text)), stop.get_token()));
  EXPECT_EQ(text, content);
  peers[1]->dies_after = 0;
  const Result<void> read =
      fill(away, object, 0, std::as_writable_bytes(std::span(text)), stop.get_token());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kUnavailable);
  EXPECT_THAT(read.error().message, HasSubstr("no host gives"));
}

TEST_F(PeerSourceTest, WhatASourceRefusesNoPeerGives) {
  make(1);
  PeerSource gated({.model = "acme/small",
                    .origin = std::make_unique<AwaySource>(Code::kFailedPrecondition),
                    .lister = std::make_unique<AwaySource>(Code::kFailedPrecondition),
                    .peers = {peers[0]},
                    .now = [this] { return now; }});
  EXPECT_EQ(gated.list(stop.get_token()).error().code, Code::kFailedPrecondition);
}

TEST_F(PeerSourceTest, OneThatGaveAWrongDigestIsDistrusted) {
  make(2);
  peers[0]->contents[kFile][5] ^= 1;
  const store::TempDirectory directory;
  const std::vector<Job> jobs{
      {.object = object(), .partial = directory.path() / "weights.partial"}};
  const Result<void> came = transfer(*source,
                                     jobs,
                                     {.connections = 1, .piece_bytes = 10'000, .digest_tries = 2},
                                     {.moved = [](std::size_t, std::uint64_t) {},
                                      .checking = [](std::size_t) {},
                                      .done = [](std::size_t) { return Result<void>(); }},
                                     stop.get_token());
  ASSERT_TRUE(came) << came.error().message;
  EXPECT_TRUE(peers[0]->distrusted);
  EXPECT_FALSE(peers[1]->distrusted) << "it gave nothing";
  EXPECT_EQ(peers[0]->reads, 1);
  EXPECT_EQ(*read_text(jobs[0].partial, 20'000), content);
}

// Property: whoever dies, refuses or ends early, what comes is the content or an error.
TEST_F(PeerSourceTest, IsRightWhateverPeersDo) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    peers.clear();
    make(1 + rng.below(3));
    for (int round = 0; round < 10; ++round) {
      for (const auto& peer : peers) {
        peer->dies_after = rng.below(3) == 0 ? std::optional(rng.below(900)) : std::nullopt;
        peer->truncates = rng.below(5) == 0 ? std::optional(rng.below(900)) : std::nullopt;
      }
      const std::uint64_t begin = rng.below(9000);
      SCOPED_TRACE("seed " + std::to_string(seed));
      expect_right({begin, begin + 1 + rng.below(999)});
      now += std::chrono::seconds(rng.below(8));
    }
  }
}

}  // namespace
}  // namespace heddle::fetch
