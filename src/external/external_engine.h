#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "config/engine_config.h"
#include "external/blocking_pool.h"
#include "external/device_checkpoint.h"
#include "external/kv_control.h"
#include "external/memory_meter.h"
#include "external/phase_timer.h"
#include "external/proc.h"
#include "external/process_set.h"
#include "spec/engine.h"

namespace heddle::external {

/// What engines of one host are handled with.
struct EngineTools {
  std::shared_ptr<BlockingPool> blocking_pool{};
  Grouping grouping = Grouping::kMarked;
  std::string record_directory{};  ///< Empty: no records.
  /// Of accelerators; null: what an engine holds of its device is host memory.
  std::shared_ptr<DeviceMeter> meter{};
  std::shared_ptr<DeviceCheckpoint> checkpoint{};
  std::string no_checkpoint{};  ///< Why there is none.
  /// Of this engine alone, if its KV is elastic.
  std::shared_ptr<KvControl> kv{};
};

/// What an engine holds after something was done to it [bytes].
struct Holding {
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;  ///< That was saved of it; nothing of what it has there anyway.
  std::vector<Phase> phases{};   ///< What was done, step by step.
};

/// One life of one engine: its start, its suspensions and resumes, its end. Operations are
/// coroutines on the loop, one at a time, but for stop(), which may come at any time: then what is
/// under way ends with an error. Each has a deadline by the configuration. Loop thread only.
class ExternalEngine {
 public:
  /// @param model           Its id; in the log, and asked for in probes unless it has a
  /// served_name.
  /// @param on_accelerator  Its device may be one: if the meter knows of it, that says what it
  /// holds.
  /// @param on_died         Told, on the loop, when it has ended by itself and nothing of it is
  /// left.
  ExternalEngine(const boost::asio::any_io_executor& executor,
                 std::string model,
                 config::EngineConfig config,
                 bool on_accelerator,
                 EngineTools tools,
                 std::function<void(const std::string& how)> on_died);
  /// Ends it at once; what is under way ends with an error.
  ~ExternalEngine();
  ExternalEngine(const ExternalEngine&) = delete;
  ExternalEngine& operator=(const ExternalEngine&) = delete;

  /// Starts it, waits until it is healthy, and probes it: phases "begin", "ready", "probe". On an
  /// error, which has its last words, nothing is left of it.
  [[nodiscard]] boost::asio::awaitable<Result<Holding>> start();
  /// Suspends it further: by any level but kStop, cheaper than none it is suspended by. From
  /// kSleep to kDeepSleep it wakes in between, so that it needs all its memory once more. On an
  /// error it is as it was before, or is awake, or has died.
  [[nodiscard]] boost::asio::awaitable<Result<Holding>> suspend(spec::SuspendLevel level);
  /// Undoes all of it, and probes it: with its first token only where nothing but freezing was
  /// done, which leaves its memory as it is. From kDeepSleep it may take as long as a start. On an
  /// error it is of no use.
  [[nodiscard]] boost::asio::awaitable<Result<Holding>> resume();
  /// Ends it, politely first. Returns how it ended, when nothing of it is left.
  [[nodiscard]] boost::asio::awaitable<std::string> stop();
  /// What it holds of its device now [bytes].
  [[nodiscard]] boost::asio::awaitable<Result<std::uint64_t>> measure();

  /// What its processes do; nothing where somebody else runs it.
  [[nodiscard]] boost::asio::awaitable<std::optional<Activity>> look();
  /// Whether it gives any answer when it is asked for its health.
  [[nodiscard]] boost::asio::awaitable<bool> answers(Duration patience);
  /// Ends it as if it had ended by itself: on_died follows.
  void kill();

  /// Its processes; for tests and benchmarks.
  [[nodiscard]] std::vector<pid_t> processes() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::external
