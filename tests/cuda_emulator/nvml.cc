// NVIDIA's management library for GPUs that are not there. What they hold is in the file that the
// environment's HEDDLE_NVML_EMULATOR names, read anew at each question: a line for each GPU,
//
//     GPU-e0000000-0000-0000-0000-000000000000 TOTAL USED [PID:BYTES]...

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT __attribute__((visibility("default")))
#pragma clang diagnostic ignored "-Wmissing-prototypes"

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalid = 2;
constexpr int kInsufficientSize = 7;
constexpr int kNotLoaded = 9;

struct Process {
  unsigned pid = 0;
  unsigned long long bytes = 0;
};
struct Gpu {
  std::string uuid{};
  unsigned long long total = 0;
  unsigned long long used = 0;
  std::vector<Process> processes{};
};

std::vector<Gpu> gpus() {
  const char* const file = std::getenv("HEDDLE_NVML_EMULATOR");
  std::ifstream stream(file == nullptr ? "" : file);
  std::vector<Gpu> all;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    Gpu gpu;
    words >> gpu.uuid >> gpu.total >> gpu.used;
    char colon = 0;
    for (Process process; words >> process.pid >> colon >> process.bytes;) {
      gpu.processes.push_back(process);
    }
    all.push_back(gpu);
  }
  return all;
}

/// A handle is the GPU's number and one.
int find(const void* handle, Gpu& gpu) {
  const auto all = gpus();
  const auto index = reinterpret_cast<std::size_t>(handle) - 1;
  if (index >= all.size()) {
    return kInvalid;
  }
  gpu = all[index];
  return kSuccess;
}

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

}  // namespace

extern "C" {

EXPORT int nvmlInit_v2() {
  return std::getenv("HEDDLE_NVML_EMULATOR") == nullptr ? kNotLoaded : kSuccess;
}
EXPORT int nvmlShutdown() {
  return kSuccess;
}
EXPORT const char* nvmlErrorString(int status) {
  return status == kNotLoaded ? "Driver Not Loaded" : "Invalid Argument";
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus().size());
  return kSuccess;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return kSuccess;
}
EXPORT int nvmlDeviceGetUUID(const void* handle, char* text, unsigned length) {
  Gpu gpu;
  const int status = find(handle, gpu);
  std::strncpy(text, gpu.uuid.c_str(), length);
  return status;
}
EXPORT int nvmlDeviceGetMemoryInfo(const void* handle, Memory* memory) {
  Gpu gpu;
  const int status = find(handle, gpu);
  *memory = {.total = gpu.total, .free = gpu.total - gpu.used, .used = gpu.used};
  return status;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const void* handle,
                                                   unsigned* count,
                                                   ProcessInfo* infos) {
  Gpu gpu;
  if (const int status = find(handle, gpu); status != kSuccess) {
    return status;
  }
  const unsigned room = *count;
  *count = static_cast<unsigned>(gpu.processes.size());
  if (room < *count) {
    return kInsufficientSize;
  }
  for (unsigned i = 0; i < *count; ++i) {
    infos[i] = {.pid = gpu.processes[i].pid,
                .bytes = gpu.processes[i].bytes,
                .gpu_instance = ~0U,
                .compute_instance = ~0U};
  }
  return kSuccess;
}

}  // extern "C"
