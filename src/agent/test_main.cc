// gtest, and a worker of sorts when it is started as one: it reads a hello and behaves as that
// says, or, without a hello, as WorkerProcess's tests want.

#include <cstdlib>
#include <cstring>
#include <string>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/test_worker.h"
#include "agent/worker_process.h"
#include "rpc/link.h"
#include "rpc/messages.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

namespace heddle::agent {
namespace {

/// Descriptors that are open and whether signals are blocked: "0 1 2 3 blocked".
std::string describe_self() {
  std::string text;
  DIR* directory = ::opendir("/proc/self/fd");
  for (const dirent* entry = ::readdir(directory); entry != nullptr; entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name[0] != '.' && std::stoi(name) != ::dirfd(directory)) {
      text += name + " ";
    }
  }
  ::closedir(directory);
  sigset_t blocked;
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  return text + (::sigismember(&blocked, SIGINT) == 1 ? "blocked" : "open");
}

void say(rpc::Link& link, const rpc::ToServe& message) {
  HEDDLE_CHECK(link.send(rpc::encode(message)).has_value());
}

void behave(rpc::Link& link, const rpc::WorkerHello& hello, const rpc::Frame& frame) {
  say(link, {.epoch = hello.epoch, .body = rpc::HelloAck{}});
  const core::WorkerReport report = core::ModelServing{.model = ModelId(1)};
  if (hello.name == kSaysAllThenEnds) {
    for (int i = 0; i < 3; ++i) {
      say(link, {.epoch = hello.epoch, .body = report});
    }
    say(link, {.epoch = hello.epoch, .body = rpc::WorkerStats{.steps = 77}});
    say(link, {.epoch = hello.epoch, .body = rpc::Beat{.threads = {{.name = "engine"}}}});
  } else if (hello.name == kSpeaksForAnotherLife) {
    say(link, {.epoch = WorkerEpoch(4), .body = report});
  } else if (hello.name == kTalksNonsense) {
    HEDDLE_CHECK(link.send("nonsense").has_value());
    ::pause();
  } else if (hello.name == kHangsUp) {
    (void)::shutdown(kWorkerSocket, SHUT_RDWR);
    ::pause();
  } else if (hello.name == kWantsTheArena) {
    const bool given =
        frame.descriptors.size() == 1 && ::fcntl(frame.descriptors[0].get(), F_GETFD) >= 0;
    std::_Exit(given ? 0 : 1);
  }
  std::_Exit(0);
}

/// Does as the first byte, or else the first frame, says.
[[noreturn]] void act_as_worker() {
  char first = 0;
  const bool told = ::recv(kWorkerSocket, &first, 1, MSG_PEEK) == 1;
  if (told && first == kExitWithSeven) {
    std::_Exit(7);
  }
  if (told && first == kDescribeYourself) {
    const std::string self = describe_self();
    (void)::send(kWorkerSocket, self.data(), self.size(), 0);
    ::pause();
  }
  boost::asio::io_context loop(1);
  rpc::Link* self = nullptr;
  rpc::Link link(loop.get_executor(),
                 rpc::Descriptor(kWorkerSocket),
                 {.on_frame =
                      [&](rpc::Frame frame) {
                        const auto message = rpc::decode_to_worker(frame.payload);
                        behave(*self, std::get<rpc::WorkerHello>(*message), frame);
                      },
                  .on_closed = [](const Error&) { std::_Exit(0); }});
  self = &link;
  loop.run();
  std::_Exit(0);
}

}  // namespace
}  // namespace heddle::agent

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "worker") == 0) {
    heddle::agent::act_as_worker();
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
