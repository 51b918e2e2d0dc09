#include "http/client.h"

#include <boost/asio/ssl.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_certificates.h"
#include "http/test_server.h"

namespace heddle::http {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using testing::HasSubstr;
using testing::Not;

struct HttpClientTest : testing::Test {
  Result<Reply> ask(const TestServer& server, Request request = {}) {
    request.patience = request.patience.value_or(1min);
    return run(loop, exchange(server.address(), std::move(request)));
  }
  asio::io_context loop{1};
};

TEST_F(HttpClientTest, SaysWhatItIsToldAndReturnsTheAnswer) {
  TestServer server(loop, {answer_of("full", "HTTP/1.1 503 Busy\r\nRetry-After: 7")});
  const auto answer = ask(server, {.method = "POST", .target = "/x?a=1", .body = "{}"});
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, "full");
  EXPECT_EQ(answer->retry_after, "7");
  const std::string& heard = server.heard.at(0);
  EXPECT_EQ(heard.find("POST /base/x?a=1 HTTP/1.1\r\n"), 0U) << heard;
  EXPECT_THAT(heard, HasSubstr("Host: " + server.address().authority() + "\r\n"));
  EXPECT_THAT(heard, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(heard, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(heard, HasSubstr("\r\n\r\n{}"));
}

TEST_F(HttpClientTest, SaysWhoAsksAndWhatOpensTheServer) {
  TestServer server(loop, {answer_of("")});
  Client client(
      loop.get_executor(),
      server.address(),
      {.access = {.api_key = "secret"}, .user_agent = "heddle", .headers = {{"X-Scope", "ours"}}});
  ASSERT_TRUE(run(loop, client.exchange({})));
  EXPECT_THAT(server.heard.at(0), HasSubstr("X-Scope: ours\r\n"));
  EXPECT_THAT(server.heard.at(0), HasSubstr("Authorization: Bearer secret\r\n"));
  EXPECT_THAT(server.heard.at(0), HasSubstr("User-Agent: heddle\r\n"));
  EXPECT_THAT(server.heard.at(0), Not(HasSubstr("Content-Type")));
}

TEST_F(HttpClientTest, TellsTheKindsOfFailureApart) {
  const HttpAddress nobody{.port = free_port()};
  const auto refused = run(loop, exchange(nobody, {.target = "/x", .patience = 1min}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr(nobody.url() + "/x: "));

  const TestServer silent(loop, {""});
  const auto late = ask(silent, {.patience = 50ms});
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(late.error().message, HasSubstr("no answer in time"));

  const TestServer cut(loop, {"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nless"});
  EXPECT_FALSE(ask(cut).has_value());
  const TestServer noise(loop, {"SSH-2.0-x\r\n\r\n"});
  EXPECT_FALSE(ask(noise).has_value());
}

TEST_F(HttpClientTest, FollowsNoRedirect) {
  const TestServer other(loop, {answer_of("")});
  const TestServer server(
      loop, {answer_of("", "HTTP/1.1 302 Found\r\nLocation: " + other.address().url() + "/")});
  const auto answer = ask(server);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 302);
  EXPECT_EQ(other.connections, 0);
}

TEST_F(HttpClientTest, FindsHostsByName) {
  const TestServer server(loop, {answer_of("")});
  HttpAddress address = server.address();
  address.host = "localhost";
  EXPECT_TRUE(run(loop, exchange(address, {.patience = 1min})).has_value());
}

TEST_F(HttpClientTest, PortOpenIsWhetherSomebodyListens) {
  const TestServer server(loop, {"x"});
  EXPECT_TRUE(run(loop, port_open(server.address(), 1min)));
  EXPECT_FALSE(run(loop, port_open({.port = free_port()}, 1min)));
}

TEST_F(HttpClientTest, KeepsAnAnswerOnlyAsLongAsItMayBe) {
  const TestServer server(loop, {answer_of("12345"), answer_of("12345")});
  EXPECT_TRUE(ask(server, {.body_max = 5}));
  const auto longer = ask(server, {.body_max = 4});
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Code::kUnavailable);
}

TEST_F(HttpClientTest, TellsASuccessfulAnswerInPartsHoweverLong) {
  std::string told;
  const auto on_part = [&](std::string_view part) { told += part; };
  const TestServer server(loop, {answer_of("12345"), answer_of("no", "HTTP/1.1 400 Bad")});
  const auto whole = ask(server, {.body_max = 1, .on_part = on_part});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(told, "12345");
  EXPECT_EQ(whole->body, "");
  const auto refused = ask(server, {.on_part = on_part});
  EXPECT_EQ(refused->body, "no");
  EXPECT_EQ(told, "12345") << "a refusal is kept whole";
}

TEST_F(HttpClientTest, KeepsConnectionsForTheNextRequests) {
  const TestServer server(loop, {answer_of("a"), answer_of("b")}, 2);
  Client client(loop.get_executor(), server.address(), {.keep_alive = true});
  EXPECT_EQ(run(loop, client.exchange({.patience = 1min}))->body, "a");
  EXPECT_EQ(run(loop, client.exchange({.patience = 1min}))->body, "b");
  EXPECT_EQ(server.connections, 1);
}

TEST_F(HttpClientTest, ReplacesAKeptConnectionThatWasClosed) {
  const TestServer server(loop, {answer_of("a"), answer_of("b")});
  Client client(loop.get_executor(), server.address(), {.keep_alive = true});
  EXPECT_EQ(run(loop, client.exchange({.patience = 1min}))->body, "a");
  const auto again = run(loop, client.exchange({.patience = 1min}));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->body, "b");
  EXPECT_EQ(server.connections, 2);
}

/// Asks a server whose certificate, for "localhost", vouches for itself.
TEST_F(HttpClientTest, EndsWhatRunsWhenItIsStopped) {
  const TestServer silent(loop, {""});
  Client client(loop.get_executor(), silent.address(), {});
  std::optional<Result<Reply>> outcome;
  bool over = false;
  asio::co_spawn(
      loop, keep(client.exchange({}), outcome), [&](const std::exception_ptr&) { over = true; });
  while (!over) {
    loop.restart();
    loop.run_one_for(50ms);
    if (!silent.heard.empty()) {
      client.stop();
    }
  }
  ASSERT_FALSE(*outcome);
  EXPECT_EQ(outcome->error().code, Code::kUnavailable);
}

TEST_F(HttpClientTest, MayBeStoppedByWhatItTells) {
  TestServer server(loop, {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmore"});
  Client client(loop.get_executor(), server.address(), {.keep_alive = true});
  std::string told;
  const auto on_part = [&](std::string_view part) {
    told += part;
    client.stop();
  };
  const auto answer = run(loop, client.exchange({.on_part = on_part}));
  ASSERT_FALSE(answer) << "even where it was the last part";
  EXPECT_EQ(told, "more");
}

TEST_F(HttpClientTest, SendsOnceWhatMayBeSentOnlyOnce) {
  TestServer server(loop, {answer_of("a"), answer_of("b")});  // And hangs up after each.
  Client client(loop.get_executor(), server.address(), {.keep_alive = true});
  ASSERT_TRUE(run(loop, client.exchange({.patience = 1min})));
  const auto answer = run(loop, client.exchange({.patience = 1min, .once = true}));
  ASSERT_FALSE(answer) << "the connection that was kept is closed";
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_TRUE(run(loop, client.exchange({.patience = 1min})));
  EXPECT_EQ(server.heard.size(), 2U);
}

struct HttpsClientTest : testing::Test {
  HttpsClientTest() {
    tls.use_certificate_chain_file(files.certificate);
    tls.use_private_key_file(files.key, asio::ssl::context::pem);
    asio::co_spawn(loop, serve(), [](const std::exception_ptr&) {});
  }
  Result<Reply> ask(Access access, const std::string& host = "localhost") {
    HttpAddress address{.host = host, .port = acceptor.local_endpoint().port(), .tls = true};
    Client client(loop.get_executor(), std::move(address), {.access = std::move(access)});
    return run(loop, client.exchange({.patience = 1min}));
  }
  asio::awaitable<void> serve() {
    asio::ssl::stream<asio::ip::tcp::socket> stream(loop, tls);
    co_await acceptor.async_accept(stream.lowest_layer(), asio::use_awaitable);
    co_await stream.async_handshake(asio::ssl::stream_base::server, asio::use_awaitable);
    std::array<char, 4096> buffer{};
    co_await stream.async_read_some(asio::buffer(buffer), asio::use_awaitable);
    const std::string answer = answer_of("safe");
    co_await asio::async_write(stream, asio::buffer(answer), asio::use_awaitable);
  }

  test::CertificateFolder certificates{};
  test::CertificateFiles files = certificates.write("server", 1);
  asio::io_context loop{1};
  asio::ssl::context tls{asio::ssl::context::tls_server};
  asio::ip::tcp::acceptor acceptor{loop, {asio::ip::address_v4::loopback(), 0}};
};

TEST_F(HttpsClientTest, TrustsWhomItIsToldTo) {
  const Result<Reply> answer = ask({.ca = files.certificate});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "safe");
}

TEST_F(HttpsClientTest, RefusesACertificateThatNobodyVouchesFor) {
  const Result<Reply> answer = ask({});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(answer.error().message, HasSubstr("certificate verify failed"));
}

TEST_F(HttpsClientTest, RefusesACertificateOfAnotherHost) {
  const Result<Reply> answer = ask({.ca = files.certificate}, "127.0.0.1");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kFailedPrecondition);
}

TEST_F(HttpsClientTest, AsksNobodyIfToldNotTo) {
  const Result<Reply> answer = ask({.insecure = true}, "127.0.0.1");
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "safe");
}

TEST_F(HttpsClientTest, ShowsItsOwnCertificate) {
  const test::CertificateFiles own = certificates.write("client", 2);
  tls.load_verify_file(own.certificate);
  tls.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  const Result<Reply> answer =
      ask({.ca = files.certificate, .certificate = own.certificate, .key = own.key});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "safe");
}

TEST_F(HttpsClientTest, SaysWhichCertificateOfItsOwnCannotBeRead) {
  const Result<Reply> answer =
      ask({.ca = files.certificate, .certificate = "/no/such.pem", .key = files.key});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
  EXPECT_THAT(answer.error().message, HasSubstr("/no/such.pem"));
}

TEST_F(HttpsClientTest, SaysWhichFileOfCertificatesCannotBeRead) {
  const Result<Reply> answer = ask({.ca = "/no/such.pem"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
  EXPECT_THAT(answer.error().message, HasSubstr("/no/such.pem"));
}

}  // namespace
}  // namespace heddle::http
