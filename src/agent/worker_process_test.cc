#include "agent/worker_process.h"

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "rpc/link.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

namespace heddle::agent {
namespace {

/// What the test's own binary does when it is started as a worker: says which descriptors and
/// blocked signals it has, then does as it is told.
[[noreturn]] void act_as_worker() {
  std::string descriptors;
  DIR* directory = ::opendir("/proc/self/fd");
  for (const dirent* entry = ::readdir(directory); entry != nullptr; entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name[0] != '.' && std::stoi(name) != ::dirfd(directory)) {
      descriptors += name + " ";
    }
  }
  ::closedir(directory);
  sigset_t blocked;
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  descriptors += ::sigismember(&blocked, SIGINT) == 1 ? "blocked" : "open";
  (void)::send(kWorkerSocket, descriptors.data(), descriptors.size(), 0);
  char order = 0;
  const ssize_t received = ::recv(kWorkerSocket, &order, 1, 0);
  std::_Exit(received == 1 && order == 'x' ? 7 : 0);
}

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

  std::string hear() {
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
  ASSERT_FALSE(exits.hear().empty());
  ASSERT_EQ(::send(exits.socket.get(), "x", 1, MSG_NOSIGNAL), 1);
  exits.loop.run();
  EXPECT_EQ(exits.ended, "exited with status 7");

  Started killed;
  ASSERT_FALSE(killed.hear().empty());
  killed.process->kill();
  killed.loop.run();
  EXPECT_EQ(killed.ended, "killed by signal 9 (Killed)");
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

int main(int count, char** arguments) {
  if (count > 1 && std::string(arguments[1]) == "worker") {
    heddle::agent::act_as_worker();
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
