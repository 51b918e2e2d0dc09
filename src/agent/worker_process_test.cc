#include "agent/worker_process.h"

#include <cerrno>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/test_worker.h"
#include "rpc/link.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

namespace heddle::agent {
namespace {

struct Started {
  Started() {
    auto sockets = rpc::socket_pair();
    HEDDLE_CHECK(sockets.has_value());
    socket = std::move(sockets->first);
    auto spawned = WorkerProcess::spawn(loop.get_executor(),
                                        std::move(sockets->second),
                                        [this](const std::string& how) { ended = how; });
    HEDDLE_CHECK(spawned.has_value());
    process = std::move(*spawned);
  }

  void say(char what) { HEDDLE_CHECK(::send(socket.get(), &what, 1, MSG_NOSIGNAL) == 1); }

  /// What the worker says of itself.
  std::string hear() {
    say(kDescribeYourself);
    std::string text(200, ' ');
    const ssize_t received = ::recv(socket.get(), text.data(), text.size(), 0);
    text.resize(received > 0 ? static_cast<std::size_t>(received) : 0);
    return text;
  }

  boost::asio::io_context loop{1};
  rpc::Descriptor socket{};
  std::optional<std::string> ended{};
  std::unique_ptr<WorkerProcess> process{};
};

TEST(WorkerProcess, InheritsItsSocketAndNothingElse) {
  // One that somebody forgot to mark close-on-exec.
  const rpc::Descriptor careless(::open("/dev/null", O_RDONLY));
  Started worker;
  EXPECT_EQ(worker.hear(), "0 1 2 3 blocked");
}

TEST(WorkerProcess, TellsHowItEnded) {
  Started exits;
  exits.say(kExitWithSeven);
  exits.loop.run();
  EXPECT_EQ(exits.ended, "exit status 7");

  Started killed;
  ASSERT_FALSE(killed.hear().empty());
  killed.process->kill();
  killed.loop.run();
  EXPECT_EQ(killed.ended, "signal 9 (Killed)");
}

TEST(WorkerProcess, DiesWithItsObjectAndLeavesNoZombie) {
  Started worker;
  ASSERT_FALSE(worker.hear().empty());
  const pid_t pid = worker.process->pid();
  worker.process.reset();
  errno = 0;
  (void)::kill(pid, 0);
  const int error = errno;
  EXPECT_EQ(error, ESRCH) << "a zombie would still have its number";
  worker.loop.run();
  EXPECT_FALSE(worker.ended.has_value());
}

}  // namespace
}  // namespace heddle::agent
