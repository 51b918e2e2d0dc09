#include "external/http_call.h"

#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace heddle::external {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::uint64_t kBodyMax = 4U << 20U;
constexpr unsigned kHttp11 = 11;

asio::awaitable<ErrorCode> connect(const core::EngineAddress& address, beast::tcp_stream& stream) {
  ErrorCode is_name;
  const asio::ip::address numeric = asio::ip::make_address(address.host, is_name);
  if (!is_name) {
    const tcp::endpoint endpoint(numeric, address.port);
    const auto [refused] = co_await stream.async_connect(endpoint, kAwait);
    co_return refused;
  }
  tcp::resolver resolver(stream.get_executor());
  const std::string port = std::to_string(address.port);
  const auto [unknown, found] = co_await resolver.async_resolve(address.host, port, kAwait);
  if (unknown) {
    co_return unknown;
  }
  const auto [refused, endpoint] = co_await stream.async_connect(found, kAwait);
  co_return refused;
}

Error failed(const core::EngineAddress& address, const HttpCall& call, const ErrorCode& error) {
  const bool late = error == beast::error::timeout;
  return {late ? Code::kDeadlineExceeded : Code::kUnavailable,
          call.method + " " + address.base_path + call.target + " at " + address.host + ":" +
              std::to_string(address.port) + ": " + (late ? "no answer in time" : error.message())};
}

}  // namespace

asio::awaitable<Result<HttpAnswer>> http_call(core::EngineAddress address,
                                              HttpCall call,
                                              Duration patience) {
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  stream.expires_after(patience);
  const ErrorCode refused = co_await connect(address, stream);
  if (refused) {
    co_return failed(address, call, refused);
  }
  http::request<http::string_body> request;
  request.version(kHttp11);
  request.method_string(call.method);
  request.target(address.base_path + call.target);
  request.set(http::field::host, address.host + ":" + std::to_string(address.port));
  request.set(http::field::connection, "close");
  if (!call.body.empty()) {
    request.set(http::field::content_type, "application/json");
  }
  request.body() = call.body;
  request.prepare_payload();
  const auto [unsent, sent] = co_await http::async_write(stream, request, kAwait);
  if (unsent) {
    co_return failed(address, call, unsent);
  }
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kBodyMax);
  const auto [cut, got] = co_await http::async_read(stream, buffer, parser, kAwait);
  if (cut) {
    co_return failed(address, call, cut);
  }
  HttpAnswer answer;
  answer.status = static_cast<int>(parser.get().result_int());
  answer.body = std::move(parser.get().body());
  co_return answer;
}

asio::awaitable<bool> port_open(core::EngineAddress address, Duration patience) {
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  stream.expires_after(patience);
  const ErrorCode refused = co_await connect(address, stream);
  co_return !refused;
}

}  // namespace heddle::external
