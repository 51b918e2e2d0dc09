#include "net/host_link.h"

#include <optional>
#include <thread>

#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "net/test_cluster.h"

namespace heddle::net {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::milliseconds;

/// What one end was told.
struct Seen {
  std::optional<Result<Peer>> opened{};
  std::vector<std::string> frames{};
  std::vector<Error> closed{};
  int drained = 0;
};

class HostLinks : public ::testing::Test {
 protected:
  void open(Side side, TcpSocket socket, Self self, Wanted wanted) {
    std::optional<HostLink>& link = side == Side::kConnects ? left : right;
    Seen& seen = side == Side::kConnects ? left_seen : right_seen;
    link.emplace(
        std::move(socket),
        side,
        std::move(self),
        std::move(wanted),
        [&link, &seen](const Result<Peer>& peer) {
          ASSERT_FALSE(seen.opened) << "told twice";
          seen.opened = peer;
          if (peer) {
            link->start(
                {.on_frame =
                     [&seen](rpc::Frame frame) { seen.frames.push_back(std::move(frame.payload)); },
                 .on_closed = [&seen](const Error& error) { seen.closed.push_back(error); },
                 .on_drained = [&seen] { ++seen.drained; }});
          }
        },
        options);
  }

  /// Opens both ends, each of which must come to a decision.
  void meet(const Self& connects, const Wanted& wants, const Self& accepts, const Wanted& takes) {
    auto [one, other] = tcp_pair(loop);
    open(Side::kConnects, std::move(one), connects, wants);
    open(Side::kAccepts, std::move(other), accepts, takes);
    run_until(loop, [this] { return left_seen.opened && right_seen.opened; });
  }

  /// Opens a manager's link to an agent, which must work.
  void open_both() {
    meet(manager(), {.roles = {Role::kAgent}}, agent(), {.roles = {Role::kManager}});
    ASSERT_TRUE(*left_seen.opened) << left_seen.opened->error().message;
    ASSERT_TRUE(*right_seen.opened) << right_seen.opened->error().message;
  }

  /// An agent's end, and a peer of the manager's certificate that says what the test has it say.
  void accept_raw() {
    auto [one, other] = tcp_pair(loop);
    open(Side::kAccepts, std::move(other), agent(), {.roles = {Role::kManager}});
    raw.emplace(std::move(one), Side::kConnects, manager().credentials);
  }

  void shake_raw() {
    accept_raw();
    run_until(loop, [this] { return raw->shaken() && !raw->frames.empty(); });
  }

  Self manager() { return self_of(issued(Role::kManager, "m")); }
  Self agent() { return self_of(issued(Role::kAgent, "h1")); }

  CredentialFiles issued(Role role, const std::string& name) {
    CredentialFiles files{.authority = cluster.authority().certificate,
                          .certificate = cluster.folder() + "/" + name + ".crt",
                          .key = cluster.folder() + "/" + name + ".key"};
    return std::filesystem::exists(files.certificate) ? files : cluster.issue(role, name);
  }

  static rpc::Greet greeting() {
    return {.cluster = "prod",
            .role = "manager",
            .name = "m",
            .incarnation = 3,
            .versions = rpc::host_versions()};
  }

  static void expect_error(const Seen& seen, const std::string& why) {
    ASSERT_TRUE(seen.opened);
    ASSERT_FALSE(*seen.opened) << "not refused: " << why;
    EXPECT_EQ(seen.opened->error().code, Code::kFailedPrecondition);
    EXPECT_NE(seen.opened->error().message.find(why), std::string::npos)
        << seen.opened->error().message;
  }

  TestCluster cluster{};
  boost::asio::io_context loop{1};
  HostLinkOptions options{};
  Seen left_seen{};
  Seen right_seen{};
  std::optional<HostLink> left{};
  std::optional<HostLink> right{};
  std::optional<RawPeer> raw{};
};

TEST_F(HostLinks, SayWhoIsThere) {
  Self here = manager();
  here.incarnation = 7;
  here.build = "0.9\n";
  here.isa = "v4";
  meet(here, {.roles = {Role::kAgent}, .name = "h1"}, agent(), {.roles = {Role::kManager}});
  ASSERT_TRUE(*left_seen.opened) << left_seen.opened->error().message;
  ASSERT_TRUE(*right_seen.opened) << right_seen.opened->error().message;
  const Peer& peer = right_seen.opened->value();
  EXPECT_EQ(peer.identity.uri(), "heddle://prod/manager/m");
  EXPECT_EQ(peer.incarnation, 7U);
  EXPECT_EQ(peer.version, rpc::host_versions().most);
  EXPECT_EQ(peer.build, "0.9?") << "text of a peer is fit for logs";
  EXPECT_EQ(peer.isa, "v4");
  EXPECT_TRUE(peer.address.starts_with("127.0.0.1:")) << peer.address;
  EXPECT_EQ(left_seen.opened->value().identity.uri(), "heddle://prod/agent/h1");
}

TEST_F(HostLinks, CarryFramesBothWaysInOrder) {
  open_both();
  const std::string large(3 << 20, 'L');
  ASSERT_TRUE(left->send("one"));
  ASSERT_TRUE(left->send(large));
  ASSERT_TRUE(left->send(""));
  ASSERT_TRUE(right->send("back"));
  run_until(loop, [this] { return right_seen.frames.size() == 3 && left_seen.frames.size() == 1; });
  EXPECT_EQ(right_seen.frames, (std::vector<std::string>{"one", large, ""}));
  EXPECT_EQ(left_seen.frames, (std::vector<std::string>{"back"}));
}

TEST_F(HostLinks, BoundWhatWaitsAndSayWhenItIsGone) {
  options.limits.queued_bytes_max = std::size_t{16} << 20U;
  open_both();
  const std::string chunk(1 << 20, 'c');
  std::size_t sent = 0;
  Result<void> last;
  while (last) {
    last = left->send(chunk);
    sent += last ? 1 : 0;
    ASSERT_LT(sent, 1000U) << "nobody reads, so the queue must fill";
  }
  EXPECT_EQ(last.error().code, Code::kResourceExhausted);
  EXPECT_GT(left->queued_bytes(), std::size_t{14} << 20U);
  run_until(loop, [&] { return right_seen.frames.size() == sent && left_seen.drained > 0; });
  EXPECT_EQ(left->queued_bytes(), 0U);
  EXPECT_TRUE(left->send("and on it goes"));
}

// --- Who is refused, and what both sides learn ---

TEST_F(HostLinks, RefuseAnotherRole) {
  meet(self_of(cluster.issue(Role::kGateway, "g")),
       {.roles = {Role::kAgent}},
       agent(),
       {.roles = {Role::kManager}});
  const std::string why =
      "gateway \"g\" of cluster \"prod\" is not wanted here: agent \"h1\" of cluster \"prod\" "
      "links "
      "with manager of its own cluster";
  expect_error(right_seen, why);
  expect_error(left_seen, "the peer refuses us: " + why);
}

TEST_F(HostLinks, RefuseAnotherNameThanTheOneThatWasToBeReached) {
  meet(manager(), {.roles = {Role::kAgent}, .name = "h2"}, agent(), {.roles = {Role::kManager}});
  const std::string why =
      "agent \"h1\" of cluster \"prod\" is not wanted here: manager \"m\" of "
      "cluster \"prod\" links with agent \"h2\" of its own cluster";
  expect_error(left_seen, why);
  expect_error(right_seen, "the peer refuses us: " + why);
}

TEST_F(HostLinks, RefuseAnotherClusterOfTheSameAuthority) {
  const Self stranger = self_of(cluster.sign({.names = "URI:heddle://test/manager/m"}));
  meet(stranger, {.roles = {Role::kAgent}}, agent(), {.roles = {Role::kManager}});
  const std::string why = "manager \"m\" of cluster \"test\" is not wanted here";
  expect_error(right_seen, why);
  expect_error(left_seen, why);
}

TEST_F(HostLinks, RefuseAnotherAuthority) {
  // A stranger's certificate, and one who would take it: for the other side it is no one's.
  TestCluster other;
  const Self stranger = self_of(other.issue(Role::kManager, "m"));
  auto [one, accepted] = tcp_pair(loop);
  open(Side::kAccepts, std::move(accepted), agent(), {.roles = {Role::kManager}});
  open(Side::kConnects, std::move(one), stranger, {.roles = {Role::kAgent}});
  run_until(loop, [this] { return left_seen.opened && right_seen.opened; });
  expect_error(left_seen,
               "the certificate of agent \"h1\" of cluster \"prod\" is not accepted: it was not "
               "issued by the authority of \"" +
                   other.authority().certificate + "\"");
  expect_error(right_seen, "does not know the authority that has issued our certificate");
}

/// Files with the authority of `trusts`, whom the certificate is not of.
std::shared_ptr<Credentials> opened_late(const CredentialFiles& good, const CredentialFiles& bad) {
  // What is bad is refused when it is opened; so it takes the place of what was good then.
  const auto credentials = Credentials::open(good);
  HEDDLE_CHECK(credentials.has_value());
  SSL_CTX* const context = (*credentials)->context().get();
  HEDDLE_CHECK(SSL_CTX_use_certificate_chain_file(context, bad.certificate.c_str()) == 1);
  HEDDLE_CHECK(SSL_CTX_use_PrivateKey_file(context, bad.key.c_str(), SSL_FILETYPE_PEM) == 1);
  return *credentials;
}

TEST_F(HostLinks, RefuseACertificateThatHasExpired) {
  Self late = manager();
  late.credentials =
      opened_late(issued(Role::kManager, "m"), cluster.issue(Role::kManager, "late", days(2)));
  meet(late, {.roles = {Role::kAgent}}, agent(), {.roles = {Role::kManager}});
  expect_error(right_seen,
               "the certificate of manager \"late\" of cluster \"prod\" is not accepted: the "
               "certificate has expired: it was good until ");
  expect_error(left_seen, "the peer refuses us: our certificate has expired; issue a new one");
}

TEST_F(HostLinks, RefuseACertificateThatIsNotGoodYet) {
  Self early = agent();
  early.credentials =
      opened_late(issued(Role::kAgent, "h1"), cluster.issue(Role::kAgent, "early", days(-2)));
  meet(manager(), {.roles = {Role::kAgent}}, early, {.roles = {Role::kManager}});
  expect_error(left_seen, "the certificate is not good before ");
  expect_error(right_seen, "the peer refuses us: it does not accept our certificate");
}

TEST_F(HostLinks, RefuseACertificateOfAnotherAuthorityThoughThePeerTrustsOurs) {
  TestCluster other;
  Self stranger = manager();
  stranger.credentials =
      opened_late(issued(Role::kManager, "m"), other.issue(Role::kManager, "stranger"));
  meet(stranger, {.roles = {Role::kAgent}}, agent(), {.roles = {Role::kManager}});
  expect_error(right_seen, "it was not issued by the authority of");
  expect_error(left_seen, "does not know the authority that has issued our certificate");
}

TEST_F(HostLinks, RefuseACertificateForOtherUses) {
  Self client = manager();
  client.credentials =
      opened_late(issued(Role::kManager, "m"),
                  cluster.sign({.names = "URI:heddle://prod/manager/m", .use = "serverAuth"}));
  meet(client, {.roles = {Role::kAgent}}, agent(), {.roles = {Role::kManager}});
  expect_error(right_seen, "it is not for links; want one for servers and for clients");
  ASSERT_FALSE(*left_seen.opened);
}

TEST_F(HostLinks, RefuseNoCertificate) {
  auto [one, other] = tcp_pair(loop);
  open(Side::kAccepts, std::move(other), agent(), {.roles = {Role::kManager}});
  const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context(SSL_CTX_new(TLS_method()));
  const SslPtr bare(SSL_new(context.get()));
  SSL_set_fd(bare.get(), one.native_handle());
  one.native_non_blocking(true);
  SSL_set_connect_state(bare.get());
  while (SSL_do_handshake(bare.get()) != 1) {
    loop.restart();
    loop.poll();
  }
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  expect_error(right_seen, "it shows no certificate");
}

TEST_F(HostLinks, RefuseOlderTls) {
  auto [one, other] = tcp_pair(loop);
  open(Side::kAccepts, std::move(other), agent(), {.roles = {Role::kManager}});
  const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context(SSL_CTX_new(TLS_method()));
  SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  const SslPtr bare(SSL_new(context.get()));
  SSL_set_fd(bare.get(), one.native_handle());
  one.native_non_blocking(true);
  SSL_set_connect_state(bare.get());
  (void)SSL_do_handshake(bare.get());
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  expect_error(right_seen, "it does not speak TLS 1.3");
}

TEST_F(HostLinks, RefuseWhatIsNoTls) {
  auto [one, other] = tcp_pair(loop);
  open(Side::kAccepts, std::move(other), agent(), {.roles = {Role::kManager}});
  boost::asio::write(one, boost::asio::buffer(std::string("GET / HTTP/1.1\r\n\r\n")));
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  expect_error(right_seen, "it does not speak TLS 1.3");
}

TEST_F(HostLinks, RefuseVersionsThatHaveNoneInCommon) {
  Self older = manager();
  older.versions = {.least = 1, .most = 2};
  Self newer = agent();
  newer.versions = {.least = 3, .most = 4};
  meet(older, {.roles = {Role::kAgent}}, newer, {.roles = {Role::kManager}});
  const std::string why = "one speaks the versions 1 to 2, the other 3 to 4; want neighbours";
  expect_error(left_seen, why);
  expect_error(right_seen, why);
}

TEST_F(HostLinks, SpeakTheHighestVersionOfBoth) {
  Self older = manager();
  older.versions = {.least = 2, .most = 3};
  Self newer = agent();
  newer.versions = {.least = 3, .most = 4};
  meet(older, {.roles = {Role::kAgent}}, newer, {.roles = {Role::kManager}});
  ASSERT_TRUE(*left_seen.opened && *right_seen.opened);
  EXPECT_EQ(left_seen.opened->value().version, 3U);
  EXPECT_EQ(right_seen.opened->value().version, 3U);
}

TEST_F(HostLinks, RefuseAGreetingThatSaysOtherThanTheCertificate) {
  for (const int claim : {0, 1, 2}) {
    right_seen = {};
    shake_raw();
    rpc::Greet greet = greeting();
    (claim == 0 ? greet.cluster : claim == 1 ? greet.role : greet.name) = "agent";
    ASSERT_TRUE(raw->link->send(rpc::encode(greet)));
    run_until(loop, [this] { return right_seen.opened && raw->frames.size() == 2; });
    expect_error(right_seen, "and the certificate heddle://prod/manager/m; want both the same");
    EXPECT_NE(raw->frames[1].payload.find("want both the same"), std::string::npos);
  }
}

TEST_F(HostLinks, RefuseWhatIsSaidBeforeTheGreeting) {
  for (const std::string& said : {std::string("something"), rpc::encode(rpc::Alive{})}) {
    right_seen = {};
    shake_raw();
    ASSERT_TRUE(raw->link->send(said));
    run_until(loop, [this] { return right_seen.opened && raw->frames.size() == 2; });
    ASSERT_FALSE(*right_seen.opened);
    EXPECT_EQ(right_seen.opened->error().code, Code::kCorrupt);
  }
}

TEST_F(HostLinks, RefuseASecondGreeting) {
  shake_raw();
  ASSERT_TRUE(raw->link->send(rpc::encode(greeting())));
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  ASSERT_TRUE(*right_seen.opened) << right_seen.opened->error().message;
  ASSERT_TRUE(raw->link->send(rpc::encode(greeting())));
  run_until(loop, [this] { return !right_seen.closed.empty(); });
  EXPECT_EQ(right_seen.closed[0].code, Code::kCorrupt);
}

TEST_F(HostLinks, DropAStrangerThatSaysNothing) {
  options.greeting = milliseconds(20);
  auto [one, other] = tcp_pair(loop);
  open(Side::kAccepts, std::move(other), agent(), {.roles = {Role::kManager}});
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  ASSERT_FALSE(*right_seen.opened);
  EXPECT_EQ(right_seen.opened->error().code, Code::kUnavailable);
  EXPECT_NE(right_seen.opened->error().message.find("it has not greeted within 20.0 ms"),
            std::string::npos)
      << right_seen.opened->error().message;
  char byte = 0;
  EXPECT_EQ(::read(one.native_handle(), &byte, 1), 0) << "the connection is closed";
}

TEST_F(HostLinks, DropAPeerThatDoesNotGreet) {
  options.greeting = milliseconds(50);
  accept_raw();  // On a busy machine not even the handshake is over by then.
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  ASSERT_FALSE(*right_seen.opened);
  EXPECT_EQ(right_seen.opened->error().code, Code::kUnavailable);
}

// --- Beats, silence and the end ---

TEST_F(HostLinks, SayThatTheyAreAliveWhereThereIsNothingElseToSay) {
  options.beat = milliseconds(2);
  options.silence = hours(1);
  shake_raw();
  ASSERT_TRUE(raw->link->send(rpc::encode(greeting())));
  run_until(loop, [this] { return raw->frames.size() >= 5; });
  for (std::size_t i = 1; i < raw->frames.size(); ++i) {
    const auto message = rpc::decode_host_message(raw->frames[i].payload);
    ASSERT_TRUE(message);
    EXPECT_TRUE(std::holds_alternative<rpc::Alive>(*message));
  }
  EXPECT_TRUE(right_seen.frames.empty());
}

TEST_F(HostLinks, CloseWhereThePeerHasSaidNothing) {
  options.beat = milliseconds(5);
  options.silence = milliseconds(20);
  options.farewell = milliseconds(20);
  shake_raw();
  ASSERT_TRUE(raw->link->send(rpc::encode(greeting())));
  run_until(loop, [this] { return !right_seen.closed.empty() && raw->end; });
  EXPECT_EQ(right_seen.closed.size(), 1U);
  EXPECT_EQ(right_seen.closed[0].code, Code::kUnavailable);
  EXPECT_NE(right_seen.closed[0].message.find("link from manager \"m\" of cluster \"prod\" at "),
            std::string::npos)
      << right_seen.closed[0].message;
  EXPECT_NE(right_seen.closed[0].message.find("it has said nothing for 20.0 ms"), std::string::npos)
      << right_seen.closed[0].message;
  EXPECT_EQ(right->send("to nobody").error().code, Code::kUnavailable);
}

TEST_F(HostLinks, ABeatThatIsDueAsTheLinkEndsIsNone) {
  options.beat = milliseconds(1);
  options.silence = hours(1);
  open_both();
  right->end("enough");
  loop.poll();  // Its last words are on their way.
  std::this_thread::sleep_for(3 * options.beat);
  loop.poll();  // The words and the beat are there at once.
  run_until(loop, [this] { return !left_seen.closed.empty(); });
  loop.poll();
  EXPECT_EQ(left_seen.closed.size(), 1U);
}

TEST_F(HostLinks, SayWhyTheyEndAfterWhatWasSentBefore) {
  open_both();
  ASSERT_TRUE(left->send("last words"));
  left->end("this host is\nbeing upgraded");
  EXPECT_FALSE(left->send("more"));
  run_until(loop, [this] { return !right_seen.closed.empty(); });
  EXPECT_EQ(right_seen.frames, (std::vector<std::string>{"last words"}));
  EXPECT_EQ(right_seen.closed[0].code, Code::kUnavailable);
  EXPECT_NE(
      right_seen.closed[0].message.find("the peer has ended the link: this host is?being upgraded"),
      std::string::npos)
      << right_seen.closed[0].message;
  loop.restart();
  loop.run();  // Nothing is left to wait for: the link lets go when the peer has.
  EXPECT_TRUE(left_seen.closed.empty()) << "who ends a link is not told of its end";
  EXPECT_EQ(right_seen.closed.size(), 1U);
}

TEST_F(HostLinks, TakeWhatThePeerSendsUntilItHasHeardTheLastWords) {
  options.farewell = hours(1);
  shake_raw();
  ASSERT_TRUE(raw->link->send(rpc::encode(greeting())));
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  right.reset();
  run_until(loop, [this] { return raw->frames.size() == 2 || raw->end; });
  ASSERT_FALSE(raw->end) << "closed before it was heard: " << raw->end->message;
  EXPECT_EQ(raw->frames[1].payload,
            rpc::encode(rpc::Bye{.why = "it has no more use for the link"}));
  ASSERT_TRUE(raw->link->send(std::string(8 << 20, 'L')));
  run_until(loop, [this] { return raw->link->queued_bytes() == 0 || raw->end; });
  EXPECT_FALSE(raw->end) << raw->end->message;
  raw.reset();
  loop.restart();
  loop.run();  // Nothing is left to wait for: the link lets go when the peer has.
  EXPECT_TRUE(right_seen.frames.empty());
  EXPECT_TRUE(right_seen.closed.empty());
}

TEST_F(HostLinks, NoticeACutInTheMiddleOfAFrame) {
  accept_raw();
  const std::string greet = rpc::encode(greeting());
  const auto frame = [](std::size_t size, const std::string& payload) {
    const auto header = rpc::encode_frame_header(size, 0);
    return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + payload;
  };
  raw->only_say(frame(greet.size(), greet) + frame(5, "whole") + frame(100, "half"), true);
  run_until(loop, [this] { return !right_seen.closed.empty(); });
  EXPECT_EQ(right_seen.frames, (std::vector<std::string>{"whole"}));
  EXPECT_EQ(right_seen.closed[0].code, Code::kUnavailable);
  EXPECT_NE(right_seen.closed[0].message.find("the connection was cut"), std::string::npos)
      << right_seen.closed[0].message;
}

TEST_F(HostLinks, CloseOnWhatIsNoFrame) {
  accept_raw();
  raw->only_say("GET / HTTP/1.1\r\n\r\n", false);
  run_until(loop, [this] { return right_seen.opened.has_value(); });
  ASSERT_FALSE(*right_seen.opened);
  EXPECT_EQ(right_seen.opened->error().code, Code::kCorrupt);
}

// --- Destroyed where it is inconvenient ---

TEST_F(HostLinks, MayBeDestroyedByAnyHandler) {
  enum class When { kOpened, kFrame, kClosed };
  for (const When when : {When::kOpened, When::kFrame, When::kClosed}) {
    left_seen = {};
    auto [one, other] = tcp_pair(loop);
    open(Side::kConnects, std::move(one), manager(), {.roles = {Role::kAgent}});
    int told = 0;
    right.emplace(std::move(other),
                  Side::kAccepts,
                  agent(),
                  Wanted{.roles = {Role::kManager}},
                  [&](const Result<Peer>& peer) {
                    ASSERT_TRUE(peer) << peer.error().message;
                    if (when == When::kOpened) {
                      ++told;
                      right.reset();
                      return;
                    }
                    right->start({.on_frame =
                                      [&](rpc::Frame) {
                                        if (when == When::kFrame) {
                                          ++told;
                                          right.reset();
                                        }
                                      },
                                  .on_closed =
                                      [&](const Error&) {
                                        EXPECT_TRUE(when == When::kClosed);
                                        ++told;
                                        right.reset();
                                      }});
                  });
    run_until(loop, [this] { return left_seen.opened.has_value(); });
    (void)left->send("one");
    (void)left->send("two: seen by none that was destroyed at one");
    if (when == When::kClosed) {
      left.reset();
    }
    run_until(loop, [&] { return told > 0 && (!left || !left_seen.closed.empty()); });
    EXPECT_EQ(told, 1);
  }
}

TEST_F(HostLinks, MayBeDestroyedAtAnyMoment) {
  // After each number of turns of the loop, and with the loop itself under way.
  for (int turns = 0; turns < 30; ++turns) {
    left_seen = {};
    right_seen = {};
    auto [one, other] = tcp_pair(loop);
    open(Side::kConnects, std::move(one), manager(), {.roles = {Role::kAgent}});
    open(Side::kAccepts, std::move(other), agent(), {.roles = {Role::kManager}});
    loop.restart();
    for (int i = 0; i < turns && !right_seen.opened; ++i) {
      loop.run_one();
    }
    right.reset();
    const bool told = right_seen.opened.has_value();
    run_until(loop, [this] { return left_seen.opened.has_value(); });
    EXPECT_EQ(right_seen.opened.has_value(), told) << "told after it was destroyed";
    left.reset();
  }
}

}  // namespace
}  // namespace heddle::net
