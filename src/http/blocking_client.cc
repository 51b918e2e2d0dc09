#include "http/blocking_client.h"

#include <csignal>
#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace heddle::http {

namespace asio = boost::asio;

namespace {

void rethrow(const std::exception_ptr& failure) {
  if (failure) {
    std::rethrow_exception(failure);
  }
}

/// Ends the loop with the answer.
asio::awaitable<void> ask(Client& client,
                          asio::io_context& loop,
                          Request request,
                          Result<Reply>& outcome) {
  outcome = co_await client.exchange(std::move(request));
  loop.stop();
}

asio::awaitable<void> keep_asking(Client& client, asio::io_context& loop, const Poll& poll) {
  asio::steady_timer timer(loop);
  for (;;) {
    timer.expires_after(poll.interval);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    const Result<Reply> reply = co_await client.exchange(poll.request);
    poll.on_reply(reply);
  }
}

}  // namespace

BlockingClient::BlockingClient(HttpAddress address, ClientOptions options)
    : address_(std::move(address)), options_(std::move(options)) {}

Result<Reply> BlockingClient::exchange(Request request) {
  asio::io_context loop(1);  // Ends last: what still waits on it ends with it.
  Client client(loop.get_executor(), address_, options_);
  Result<Reply> outcome = Error{.code = Code::kCancelled, .message = "interrupted"};
  asio::signal_set interrupt(loop);
  if (interruptible_) {
    interrupt.add(SIGINT);
    interrupt.async_wait([&loop](const boost::system::error_code&, int) { loop.stop(); });
  }
  asio::co_spawn(loop, ask(client, loop, std::move(request), outcome), rethrow);
  if (poll_) {
    asio::co_spawn(loop, keep_asking(client, loop, *poll_), rethrow);
  }
  loop.run();
  return outcome;
}

}  // namespace heddle::http
