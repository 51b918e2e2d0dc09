#include "device/cuda/nvml.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/units.h"

#include <sys/stat.h>
#include <unistd.h>

namespace heddle::device {

namespace {

// The few declarations of nvml.h that are needed, as its binary interface has them.
using NvmlDevice = void*;
using NvmlStatus = int;
constexpr NvmlStatus kSuccess = 0;
constexpr NvmlStatus kInsufficientSize = 7;
/// A number of bytes that the driver does not know.
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr std::size_t kNamedMax = 4;

struct NvmlProcess {  // nvmlProcessInfo_v2_t
  unsigned int pid = 0;
  unsigned long long used_bytes = 0;
  unsigned int gpu_instance = 0;
  unsigned int compute_instance = 0;
};

struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

}  // namespace

struct Nvml::Calls {
  NvmlStatus (*init)() = nullptr;
  NvmlStatus (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlStatus) = nullptr;
  NvmlStatus (*device_count)(unsigned int*) = nullptr;
  NvmlStatus (*device_by_index)(unsigned int, NvmlDevice*) = nullptr;
  NvmlStatus (*uuid)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlStatus (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlStatus (*processes)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;

  [[nodiscard]] Error failed(const std::string& what, NvmlStatus status) const {
    return {Code::kUnavailable, "NVML: " + what + ": " + error_string(status)};
  }
};

Nvml::Nvml(DriverLibrary library, std::unique_ptr<const Calls> calls)
    : library_(std::move(library)), calls_(std::move(calls)) {}

Nvml::~Nvml() {
  (void)calls_->shutdown();
}

Result<std::unique_ptr<Nvml>> Nvml::open() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* const named = std::getenv("HEDDLE_NVML");
  Result<DriverLibrary> library =
      DriverLibrary::open(named == nullptr ? "libnvidia-ml.so.1" : named);
  if (!library) {
    return library.error();
  }
  Calls calls;
  const std::array<Result<void>, 8> found = {
      library->find("nvmlInit_v2", calls.init),
      library->find("nvmlShutdown", calls.shutdown),
      library->find("nvmlErrorString", calls.error_string),
      library->find("nvmlDeviceGetCount_v2", calls.device_count),
      library->find("nvmlDeviceGetHandleByIndex_v2", calls.device_by_index),
      library->find("nvmlDeviceGetUUID", calls.uuid),
      library->find("nvmlDeviceGetMemoryInfo", calls.memory),
      library->find("nvmlDeviceGetComputeRunningProcesses_v3", calls.processes)};
  for (const Result<void>& each : found) {
    if (!each) {
      return each.error();
    }
  }
  if (const NvmlStatus status = calls.init(); status != kSuccess) {
    return calls.failed("start", status);
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(*library), std::make_unique<const Calls>(calls)));
}

Result<std::vector<GpuMemory>> Nvml::read() const {
  unsigned int devices = 0;
  if (const NvmlStatus status = calls_->device_count(&devices); status != kSuccess) {
    return calls_->failed("count GPUs", status);
  }
  std::vector<GpuMemory> all;
  for (unsigned int index = 0; index < devices; ++index) {
    Result<GpuMemory> gpu = read(index);
    if (!gpu) {
      return gpu.error();
    }
    all.push_back(std::move(*gpu));
  }
  return all;
}

Result<GpuMemory> Nvml::read(unsigned index) const {
  NvmlDevice device = nullptr;
  if (const NvmlStatus status = calls_->device_by_index(index, &device); status != kSuccess) {
    return calls_->failed("open a GPU", status);
  }
  std::array<char, 96> uuid{};
  NvmlMemory memory;
  NvmlStatus status = calls_->uuid(device, uuid.data(), uuid.size() - 1);
  if (status == kSuccess) {
    status = calls_->memory(device, &memory);
  }
  if (status != kSuccess) {
    return calls_->failed("ask for a GPU's memory", status);
  }
  std::vector<NvmlProcess> listed(64);
  auto count = static_cast<unsigned int>(listed.size());
  // More may come between asking how many there are and asking who.
  while ((status = calls_->processes(device, &count, listed.data())) == kInsufficientSize) {
    listed.resize(std::max<std::size_t>(count, listed.size()) * 2);
    count = static_cast<unsigned int>(listed.size());
  }
  if (status != kSuccess) {
    return calls_->failed("list the processes of a GPU", status);
  }
  listed.resize(count);
  GpuMemory gpu{.uuid = uuid.data(), .total = memory.total, .used = memory.used};
  for (const NvmlProcess& process : listed) {
    gpu.processes.push_back(
        {.pid = static_cast<pid_t>(process.pid),
         .bytes = process.used_bytes == kNotAvailable ? 0 : process.used_bytes});
  }
  return gpu;
}

namespace {

/// The parent of a process; 0 where there is no such process.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // A name may have any characters.
  char state = 0;
  pid_t parent = 0;
  if (name_end != std::string::npos) {
    std::istringstream(text.substr(name_end + 1)) >> state >> parent;
  }
  return parent;
}

bool runs_this_program(pid_t pid) {
  struct stat own{};
  struct stat other{};
  const std::string path = "/proc/" + std::to_string(pid) + "/exe";
  return ::stat("/proc/self/exe", &own) == 0 && ::stat(path.c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

}  // namespace

bool is_ours(pid_t pid) {
  const pid_t self = ::getpid();
  for (pid_t each = pid; each > 1; each = parent_of(each)) {
    if (each == self) {
      return true;
    }
  }
  return runs_this_program(pid);
}

std::uint64_t held_by_others(const GpuMemory& gpu) {
  std::uint64_t sum = 0;
  for (const GpuProcess& process : gpu.processes) {
    sum += is_ours(process.pid) ? 0 : process.bytes;
  }
  return sum;
}

std::string name_others(const GpuMemory& gpu) {
  std::vector<GpuProcess> others = gpu.processes;
  std::erase_if(others, [](const GpuProcess& each) { return is_ours(each.pid); });
  std::ranges::sort(others, std::greater(), &GpuProcess::bytes);
  std::string text;
  for (std::size_t i = 0; i < std::min(others.size(), kNamedMax); ++i) {
    const std::string pid = std::to_string(others[i].pid);
    std::ifstream file("/proc/" + pid + "/comm");
    std::string name;
    std::getline(file, name);
    text += (i == 0 ? "" : ", ") + (name.empty() ? "process" : name) + " (" + pid + ") " +
            format_bytes(others[i].bytes);
  }
  return others.size() > kNamedMax
             ? text + " and " + std::to_string(others.size() - kNamedMax) + " more"
             : text;
}

std::string name_others(const std::string& uuid) {
  const auto nvml = Nvml::open();
  const auto gpus = nvml ? (*nvml)->read() : Result<std::vector<GpuMemory>>(nvml.error());
  if (!gpus) {
    return "";
  }
  const auto found = std::ranges::find(*gpus, uuid, &GpuMemory::uuid);
  return found == gpus->end() ? "" : name_others(*found);
}

}  // namespace heddle::device
