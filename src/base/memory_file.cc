#include "base/memory_file.h"

#include <cerrno>
#include <system_error>

#include "base/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

Result<MemoryFile> MemoryFile::create(const std::string& name, std::size_t bytes) {
  const std::string attempt = "make " + std::to_string(bytes) + " bytes of shared memory";
  Descriptor memory(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) {
    return Error{Code::kUnavailable, attempt + ": memfd_create: " + reason(errno)};
  }
  int failed = EINTR;
  while (failed == EINTR) {
    failed = ::posix_fallocate(memory.get(), 0, static_cast<off_t>(bytes));
  }
  if (failed != 0) {
    return Error{Code::kResourceExhausted, attempt + ": " + reason(failed)};
  }
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return Error{Code::kUnavailable, attempt + ": seal it: " + reason(errno)};
  }
  return map(std::move(memory), bytes);
}

Result<MemoryFile> MemoryFile::attach(int fd, std::size_t least) {
  const std::string attempt = "attach shared memory at descriptor " + std::to_string(fd);
  struct stat file{};
  if (::fstat(fd, &file) != 0) {
    return Error{Code::kInvalidArgument, attempt + ": " + reason(errno)};
  }
  const auto bytes = static_cast<std::size_t>(file.st_size);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || bytes < least) {
    return Error{Code::kInvalidArgument,
                 attempt + ": it is not a sealed memory file of at least " + std::to_string(least) +
                     " bytes"};
  }
  Descriptor own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) {
    return Error{Code::kUnavailable, attempt + ": dup: " + reason(errno)};
  }
  return map(std::move(own), bytes);
}

Result<MemoryFile> MemoryFile::map(Descriptor descriptor, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return Error{Code::kResourceExhausted,
                 "map " + std::to_string(bytes) + " bytes of shared memory: " + reason(errno)};
  }
  return MemoryFile(std::move(descriptor), static_cast<std::byte*>(data), bytes);
}

MemoryFile::~MemoryFile() {
  if (data_ != nullptr) {
    HEDDLE_CHECK(::munmap(data_, bytes_) == 0);
  }
}

}  // namespace heddle
