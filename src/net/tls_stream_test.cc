#include "net/tls_stream.h"

#include <optional>

#include <gtest/gtest.h>

#include "net/test_cluster.h"
#include "rpc/link.h"

#include <fcntl.h>

namespace heddle::net {
namespace {

/// Both ends of a connection, each with a link once the handshake is done.
class TlsLink : public ::testing::Test {
 protected:
  TlsLink() {
    auto [one, other] = tcp_pair(loop);
    one.set_option(boost::asio::ip::tcp::no_delay(true));
    left.emplace(
        std::move(one), Side::kConnects, *Credentials::open(cluster.issue(Role::kManager, "m")));
    right.emplace(
        std::move(other), Side::kAccepts, *Credentials::open(cluster.issue(Role::kAgent, "h1")));
  }

  void shake() {
    run_until(loop, [this] { return left->shaken() && right->shaken(); });
  }

  TestCluster cluster{};
  boost::asio::io_context loop{1};
  std::optional<RawPeer> left{};
  std::optional<RawPeer> right{};
};

TEST_F(TlsLink, CarriesFramesBothWaysInOrder) {
  shake();
  const std::string large(40 << 20, 'L');
  ASSERT_TRUE(left->link->send("one"));
  ASSERT_TRUE(left->link->send(large));
  ASSERT_TRUE(left->link->send(""));
  ASSERT_TRUE(right->link->send(large));
  run_until(loop, [&] { return right->frames.size() == 3 && left->frames.size() == 1; });
  EXPECT_EQ(right->frames[0].payload, "one");
  EXPECT_TRUE(right->frames[1].payload == large);
  EXPECT_EQ(right->frames[2].payload, "");
  EXPECT_TRUE(left->frames[0].payload == large);
  EXPECT_EQ(right->link->received_bytes(), 3 + large.size() + 3 * rpc::kFrameHeaderBytes);
}

TEST_F(TlsLink, CarriesFramesOfEverySizeAroundARecord) {
  shake();
  std::vector<std::string> sent;
  for (std::size_t size = 16384 - 20; size < 16384 + 20; ++size) {
    sent.emplace_back(size, static_cast<char>('a' + size % 26));
    ASSERT_TRUE(left->link->send(sent.back()));
  }
  run_until(loop, [&] { return right->frames.size() == sent.size(); });
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(right->frames[i].payload, sent[i]);
  }
}

TEST_F(TlsLink, LeavesNoPartOfARecordBehind) {
  shake();
  // So many frames that the last lies across the end of what is received at once.
  for (int count = 60; count < 70; ++count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(left->link->send(std::string(1000, 'r')));
    }
    run_until(loop, [&] { return right->frames.size() == static_cast<std::size_t>(count); });
    right->frames.clear();
  }
}

TEST_F(TlsLink, CarriesNoDescriptors) {
  shake();
  std::vector<rpc::Descriptor> given;
  given.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Result<void> sent = left->link->send("with one", std::move(given));
  EXPECT_EQ(sent.error().code, Code::kInvalidArgument);
  ASSERT_TRUE(left->link->send("without"));
  run_until(loop, [&] { return right->frames.size() == 1; });
  EXPECT_EQ(right->frames[0].payload, "without");
}

TEST_F(TlsLink, RefusesAFrameThatAnnouncesDescriptors) {
  const auto header = rpc::encode_frame_header(0, 1);
  left->only_say({reinterpret_cast<const char*>(header.data()), header.size()}, false);
  run_until(loop, [this] { return right->end.has_value(); });
  EXPECT_EQ(right->end->code, Code::kCorrupt);
  EXPECT_TRUE(right->frames.empty());
}

TEST_F(TlsLink, TellsAnEndFromACut) {
  shake();
  ASSERT_TRUE(left->link->send("last words"));
  left->link.reset();
  run_until(loop, [this] { return right->end.has_value(); });
  ASSERT_EQ(right->frames.size(), 1U);
  EXPECT_EQ(right->end->code, Code::kUnavailable);
  EXPECT_EQ(right->end->message, "the peer has closed the link");
  EXPECT_EQ(right->link->send("to nobody").error().code, Code::kUnavailable);
}

TEST_F(TlsLink, NoticesACutInTheMiddleOfAFrame) {
  const auto header = rpc::encode_frame_header(100, 0);
  left->only_say(std::string(reinterpret_cast<const char*>(header.data()), header.size()) + "half",
                 true);
  run_until(loop, [this] { return right->end.has_value(); });
  EXPECT_EQ(right->end->code, Code::kUnavailable);
  EXPECT_NE(right->end->message.find("was cut"), std::string::npos) << right->end->message;
  EXPECT_TRUE(right->frames.empty());
}

TEST_F(TlsLink, DeliversWhatCameBeforeBytesThatAreNoTls) {
  auto [one, other] = tcp_pair(loop);
  const int bare = one.native_handle();
  left.emplace(
      std::move(one), Side::kConnects, *Credentials::open(cluster.issue(Role::kManager, "m2")));
  right.emplace(
      std::move(other), Side::kAccepts, *Credentials::open(cluster.issue(Role::kAgent, "h2")));
  shake();
  ASSERT_TRUE(left->link->send("in TLS"));
  // As long as a record's head, so that nothing stays in the socket to tell of it again.
  ASSERT_EQ(::write(bare, "clear", 5), 5);
  run_until(loop, [this] { return right->end.has_value(); });
  ASSERT_EQ(right->frames.size(), 1U);
  EXPECT_EQ(right->frames[0].payload, "in TLS");
  EXPECT_EQ(right->end->message, "it does not speak TLS 1.3");
}

TEST_F(TlsLink, BoundsWhatWaitsForASlowPeer) {
  shake();
  const std::string chunk(4 << 20, 'c');
  std::size_t sent = 0;
  Result<void> last;
  while (last) {
    last = left->link->send(chunk);
    sent += last ? 1 : 0;
    ASSERT_LT(sent, 1000U) << "nobody reads, so the queue must fill";
  }
  EXPECT_EQ(last.error().code, Code::kResourceExhausted);
  EXPECT_GT(left->link->queued_bytes(), std::size_t{200} << 20U);
  run_until(loop, [&] { return right->frames.size() == sent; });
  run_until(loop, [&] { return left->link->queued_bytes() == 0; });
  EXPECT_TRUE(left->link->send("and on it goes"));
}

TEST_F(TlsLink, KnowsWhoseCertificateThePeerHas) {
  auto [one, other] = tcp_pair(loop);
  const auto manager = *Credentials::open(cluster.issue(Role::kManager, "m3"));
  const auto agent = *Credentials::open(cluster.issue(Role::kAgent, "h3"));
  TlsStream connects(std::move(one), Side::kConnects, *manager);
  TlsStream accepts(std::move(other), Side::kAccepts, *agent);
  bool connected = false;
  bool accepted = false;
  for (int i = 0; i < 1000000 && !(connected && accepted); ++i) {
    connected = connected || connects.shake().bytes == 1;
    accepted = accepted || accepts.shake().bytes == 1;
  }
  ASSERT_TRUE(connected && accepted);
  EXPECT_EQ(connects.peer()->uri(), "heddle://prod/agent/h3");
  EXPECT_EQ(accepts.peer()->uri(), "heddle://prod/manager/m3");
}

}  // namespace
}  // namespace heddle::net
