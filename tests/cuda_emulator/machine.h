#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_emulator/config.h"
#include "cuda_emulator/memory.h"
#include "cuda_emulator/streams.h"
#include "device/cuda/driver_api.h"

// The driver's handles.
struct CUctx_st {
  std::size_t device = 0;
};
struct CUstream_st {
  std::shared_ptr<emulator::Queue> queue{};
};
struct CUevent_st {
  std::shared_ptr<emulator::Queue> queue{};  ///< Null: never recorded.
  std::uint64_t count = 0;
  /// When the stream came there, by the host's clock [s]; null of an event that is not timed.
  std::shared_ptr<double> passed{};
};
struct CUmod_st {
  int images = 0;
};
struct CUfunc_st {
  void* entry = nullptr;
  std::size_t shared_bytes_max = std::size_t{48} << 10U;
};
struct CUgraph_st {
  std::shared_ptr<const std::vector<emulator::Operation>> operations{};
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<emulator::Operation>> operations{};
};

namespace emulator {

using heddle::device::CUcontext;
using heddle::device::CUevent;
using heddle::device::CUfunction;
using heddle::device::CUgraph;
using heddle::device::CUgraphExec;
using heddle::device::CUmodule;
using heddle::device::CUstream;

/// Objects of one kind that the driver handed out: what is not among them is no handle.
template <class Object>
class Handles {
 public:
  Object* make(Object object) {
    auto owned = std::make_unique<Object>(std::move(object));
    Object* const handle = owned.get();
    objects_.emplace(handle, std::move(owned));
    return handle;
  }
  [[nodiscard]] bool has(Object* handle) const { return objects_.contains(handle); }
  bool drop(Object* handle) { return objects_.erase(handle) > 0; }
  [[nodiscard]] std::size_t size() const { return objects_.size(); }
  [[nodiscard]] auto begin() const { return objects_.begin(); }
  [[nodiscard]] auto end() const { return objects_.end(); }

 private:
  std::map<Object*, std::unique_ptr<Object>> objects_{};
};

/// Calls that tests hold up, with a lock of their own.
class Holds {
 public:
  /// Returns when no call of that name is held.
  void pass(const std::string& call) {
    std::unique_lock lock(mutex_);
    if (held_.contains(call)) {
      ++held_[call];
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_.contains(call); });
    }
  }
  void hold(const std::string& call) {
    const std::lock_guard lock(mutex_);
    held_.try_emplace(call, 0);
  }
  void wait(const std::string& call) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_.contains(call) || held_[call] > 0; });
  }
  void let_go(const std::string& call) {
    const std::lock_guard lock(mutex_);
    held_.erase(call);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::map<std::string, int> held_{};  ///< How many wait.
};

/// The machine with its GPUs, of which there is one in a process, until it is configured anew. All
/// with `machinery.mutex`.
class Machine {
 public:
  explicit Machine(const Config& config);

  /// At the beginning of each call: counts it, and says what it returns instead of doing anything,
  /// if so: a failure that was asked for, no cuInit, a lost device.
  CUresult enter(const std::string& call, bool needs_init, bool needs_device);
  /// A failure that was asked for, of what is not a call of the driver.
  CUresult planned(const std::string& call);
  /// The device of this thread's context is not to be used any more.
  void lose(std::size_t device, CUresult status) { lost[device] = status; }
  /// Calls that wait or allocate spoil what this thread records. True where it does.
  bool spoils_capture();
  /// As Machinery::advance.
  bool advance(std::unique_lock<std::mutex>& lock);
  /// Waits for all streams of a device.
  CUresult run_device(std::unique_lock<std::mutex>& lock, std::size_t device);
  [[nodiscard]] std::string alive() const;

  Config config;
  Machinery machinery{};
  Memory memory;
  bool initialised = false;
  std::vector<CUctx_st> contexts{};  ///< By device.
  std::vector<int> retained{};       ///< How often, by device.
  std::vector<CUresult> lost{};      ///< By device; 0 while it works.
  Handles<CUstream_st> streams{};
  Handles<CUevent_st> events{};
  Handles<CUmod_st> modules{};
  Handles<CUgraph_st> graphs{};
  Handles<CUgraphExec_st> executables{};
  std::map<std::string, CUfunc_st> functions{};  ///< By name; never dropped.
  std::map<std::string, unsigned long> calls{};
  Holds holds{};

  struct Plan {
    unsigned in = 0;  ///< Calls from now.
    CUresult status = 0;
  };
  std::map<std::string, Plan> plans{};
};

/// The machine there is; made by the environment's text if need be.
Machine& machine();
/// Another machine. Returns what is wrong with the text.
std::string make_machine(const std::string& text);

/// The context that is current on the calling thread, or null.
CUcontext& current_context();

}  // namespace emulator
