#include "fetch/file_lock.h"

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "fetch/disk.h"

#include <fcntl.h>
#include <sys/file.h>

namespace heddle::fetch {
namespace {

constexpr auto kBetweenTries = std::chrono::milliseconds(100);

Result<Descriptor> open_lock(const std::filesystem::path& path) {
  if (const Result<void> made = make_folder(path.parent_path()); !made) {
    return made.error();
  }
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) {
    return disk_error("open", path, errno);
  }
  return file;
}

}  // namespace

Result<FileLock> FileLock::wait(const std::filesystem::path& path,
                                const std::function<void()>& on_wait,
                                const std::stop_token& stop) {
  Result<Descriptor> file = open_lock(path);
  if (!file) {
    return file.error();
  }
  bool said = false;
  while (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return disk_error("lock", path, errno);
    }
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    if (!std::exchange(said, true)) {
      on_wait();
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  return FileLock(std::move(file).value());
}

Result<FileLock> FileLock::now(const std::filesystem::path& path) {
  return lock_now(path, LOCK_EX);
}

Result<FileLock> FileLock::shared(const std::filesystem::path& path) {
  return lock_now(path, LOCK_SH);
}

Result<FileLock> FileLock::lock_now(const std::filesystem::path& path, int how) {
  Result<Descriptor> file = open_lock(path);
  if (!file) {
    return file.error();
  }
  if (::flock(file->get(), how | LOCK_NB) != 0) {
    return Error{Code::kUnavailable, fmt::format("{} is locked by another", path.string())};
  }
  return FileLock(std::move(file).value());
}

}  // namespace heddle::fetch
