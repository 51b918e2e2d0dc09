// gtest, and a worker of sorts when it is started as one: it answers each request with one token,
// and lends what pages it is asked for.

#include <cstdlib>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/worker_process.h"
#include "base/check.h"
#include "core/messages.h"
#include "rpc/link.h"
#include "rpc/messages.h"

namespace heddle::host {
namespace {

class Worker {
 public:
  explicit Worker(boost::asio::io_context& loop)
      : link_(loop.get_executor(),
              rpc::Descriptor(agent::kWorkerSocket),
              {.on_frame =
                   [this](const rpc::Frame& frame) {
                     const auto message = rpc::decode_to_worker(frame.payload);
                     HEDDLE_CHECK(message.has_value());
                     std::visit([this](const auto& body) { hear(body); }, *message);
                   },
               .on_closed = [](const Error&) { std::_Exit(0); }}) {}

 private:
  void hear(const rpc::WorkerHello& hello) {
    epoch_ = hello.epoch;
    pages_ = hello.pages;
    HEDDLE_CHECK(link_.send(rpc::encode({.epoch = epoch_, .body = rpc::HelloAck{}})).has_value());
  }
  void hear(const core::WorkerMessage& message) {
    if (const auto* submit = std::get_if<core::Submit>(&message)) {
      report(core::TokensProduced{.tokens = {{.request = submit->request, .token = 65}}});
    } else if (const auto* lend = std::get_if<core::LendPages>(&message)) {
      core::PagesReturned returned{.model = lend->model};
      for (std::int64_t i = 0; i < lend->count; ++i) {
        returned.pages.push_back(pages_.back());
        pages_.pop_back();
      }
      report(returned);
    }
  }
  template <class T>
  void hear(const T& /*other*/) {}

  void report(core::WorkerReport report) {
    HEDDLE_CHECK(link_.send(rpc::encode({.epoch = epoch_, .body = std::move(report)})).has_value());
  }

  WorkerEpoch epoch_{};
  std::vector<PageId> pages_{};
  rpc::Link link_;
};

[[noreturn]] void act_as_worker() {
  boost::asio::io_context loop(1);
  Worker worker(loop);
  loop.run();
  std::_Exit(0);
}

}  // namespace
}  // namespace heddle::host

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "worker") == 0) {
    heddle::host::act_as_worker();
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
