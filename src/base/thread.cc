#include "base/thread.h"

#include <cstring>
#include <latch>
#include <memory>
#include <vector>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace heddle {
namespace {

struct Start {
  std::string name{};
  int nice = 0;
  std::function<void()> body{};
};

void* begin(void* raw) {
  const std::unique_ptr<Start> start(static_cast<Start*>(raw));
  (void)::pthread_setname_np(::pthread_self(), start->name.c_str());
  if (start->nice != 0) {
    // Of Linux each thread has a niceness of its own.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), start->nice);
  }
  start->body();
  return nullptr;
}

}  // namespace

Result<Thread> Thread::start(const Options& options, std::function<void()> body) {
  auto start = std::make_unique<Start>(
      Start{.name = options.name, .nice = options.nice, .body = std::move(body)});
  pthread_attr_t attributes;
  (void)::pthread_attr_init(&attributes);
  int error = 0;
  if (options.stack_bytes > 0) {
    error = ::pthread_attr_setstacksize(&attributes, options.stack_bytes);
  }
  Thread thread;
  if (error == 0) {
    error = ::pthread_create(&thread.handle_, &attributes, begin, start.get());
  }
  (void)::pthread_attr_destroy(&attributes);
  if (error != 0) {
    return out_of_threads("the thread \"" + options.name + "\"", std::strerror(error));
  }
  (void)start.release();  // The thread's.
  thread.joinable_ = true;
  return thread;
}

void Thread::join() {
  if (std::exchange(joinable_, false)) {
    (void)::pthread_join(handle_, nullptr);
  }
}

Result<void> try_threads(std::size_t count) {
  std::latch over(1);
  std::vector<Thread> threads;
  Result<void> tried;
  while (tried && threads.size() < count) {
    const std::string what = "thread " + std::to_string(threads.size() + 1);
    Result<Thread> thread = Thread::start({.name = what}, [&over] { over.wait(); });
    if (thread) {
      threads.push_back(std::move(*thread));
    } else {
      tried = thread.error();
    }
  }
  over.count_down();
  return tried;
}

Error out_of_threads(const std::string& what, std::string_view why) {
  std::string message = "start " + what + ": ";
  message += why.substr(0, why.find(" ["));  // Boost adds its number and its source.
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    message += "; the limit of processes and threads of this user (ulimit -u) is " +
               std::to_string(limit.rlim_cur) +
               ", heddle needs about 20, and 10 and its cores for each device";
  }
  return {.code = Code::kUnavailable, .message = std::move(message)};
}

}  // namespace heddle
