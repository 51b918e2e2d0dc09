#include "worker/outbox.h"

#include <string>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace heddle::worker {
namespace {

TEST(Outbox, SaysWhenItIsFarBehindAndWhenItNoLongerIs) {
  boost::asio::io_context loop(1);
  auto sockets = rpc::socket_pair();
  ASSERT_TRUE(sockets);
  Outbox* outbox_of_link = nullptr;
  rpc::Link link(
      loop.get_executor(),
      std::move(sockets->first),
      {.on_closed = [](const Error&) {}, .on_drained = [&] { outbox_of_link->link_drained(); }});
  int relieved = 0;
  Outbox outbox(loop.get_executor(),
                link,
                {.on_failed = [](const Error& error) { FAIL() << error.message; },
                 .on_relieved = [&] { ++relieved; }});
  outbox_of_link = &outbox;

  const rpc::ToServe message{
      .epoch = WorkerEpoch(1),
      .body = rpc::HelloAck{.failure = Error{Code::kUnavailable, std::string(10'000, 'x')}}};
  int sent = 0;
  while (!outbox.backlogged()) {
    std::thread([&] { outbox.send(message); }).join();
    ++sent;
    loop.poll();
    ASSERT_LT(sent, 10'000) << "nobody reads at the other end";
  }
  loop.poll();
  EXPECT_EQ(relieved, 0);

  int received = 0;
  rpc::Link reader(loop.get_executor(),
                   std::move(sockets->second),
                   {.on_frame = [&](rpc::Frame) { ++received; }, .on_closed = [](const Error&) {}});
  while (received < sent || relieved == 0) {
    loop.run_one();
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(relieved, 1);
  EXPECT_FALSE(outbox.backlogged());
}

TEST(Outbox, IsRelievedAlsoWhenTheLoopMerelyWasLate) {
  boost::asio::io_context loop(1);
  auto sockets = rpc::socket_pair();
  ASSERT_TRUE(sockets);
  rpc::Link link(
      loop.get_executor(), std::move(sockets->first), {.on_closed = [](const Error&) {}});
  rpc::Link reader(loop.get_executor(),
                   std::move(sockets->second),
                   {.on_frame = [](rpc::Frame) {}, .on_closed = [](const Error&) {}});
  int relieved = 0;
  Outbox outbox(loop.get_executor(),
                link,
                {.on_failed = [](const Error& error) { FAIL() << error.message; },
                 .on_relieved = [&] { ++relieved; }});
  const rpc::ToServe message{
      .body = rpc::HelloAck{.failure = Error{Code::kUnavailable, std::string(100'000, 'x')}}};
  while (!outbox.backlogged()) {
    outbox.send(message);  // More than the limit before the loop takes any of it.
  }
  while (relieved == 0) {
    ASSERT_EQ(loop.run_one(), 1U);
    outbox.link_drained();  // As the link says whenever its queue is empty.
  }
  EXPECT_EQ(relieved, 1);
}

}  // namespace
}  // namespace heddle::worker
