#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/event_log.h"
#include "core/messages.h"
#include "core/worker_core.h"
#include "device/device.h"
#include "rpc/messages.h"
#include "worker/device_executor.h"
#include "worker/inbox.h"
#include "worker/outbox.h"

namespace heddle::worker {

/// The engine thread: hears what comes, lets the core decide, carries it out, and runs steps while
/// there are any to run. Sleeps when there are none. It ends with the process: what it has needs no
/// saving, and a device that is lost ends the process.
class EngineLoop {
 public:
  /// Starts the thread, whose first message is the HelloAck. `outbox` outlives the process, as does
  /// `guests`, by which the device's steps take longer.
  EngineLoop(rpc::WorkerHello hello,
             std::unique_ptr<device::Device> device,
             Outbox& outbox,
             const GuestTime& guests);
  ~EngineLoop() = delete;  // The thread refers to it to the end of the process.

  /// Loop thread.
  void hear(core::WorkerMessage message);
  void hear(rpc::ModelDescription model) { push(std::move(model)); }
  /// What its rank 0 says comes by hear_leader(), from then on.
  void hear(std::unique_ptr<Lockstep> lockstep) { push(std::move(lockstep)); }
  /// Of rank 0 of the group that this shard is in.
  void hear_leader(ModelId shard, core::WorkerCommand command) {
    push(Followed{.shard = shard, .command = std::move(command)});
  }
  void hear(std::unique_ptr<Pipe> pipe) { push(std::move(pipe)); }
  /// What comes from the stage before, and that one of the others has gone.
  void hear_stage(std::uint64_t pipe, std::string payload) {
    push(FromStage{.pipe = pipe, .payload = std::move(payload)});
  }
  void hear_stage_gone(std::uint64_t pipe) { push(StageGone{pipe}); }
  void hear(rpc::KvAsk ask) { push(std::move(ask)); }
  void hear(rpc::KvGiven given) { push(std::move(given)); }
  void hear(Peer peer) { push(std::move(peer)); }
  void hear(GuestHost host) { push(std::move(host)); }
  void hear(GuestMemory memory) { push(std::move(memory)); }
  /// The backlog that made it pause is gone. Loop thread.
  void hear_relieved() { push(Relieved{}); }
  /// What the threads are at; nothing before the engine is there. Any thread.
  [[nodiscard]] std::vector<policy::ThreadPulse> pulses() const;

 private:
  struct Relieved {};
  struct Heard {
    core::WorkerMessage message{};
    Instant at{};
  };
  struct Followed {
    ModelId shard{};
    core::WorkerCommand command{};
  };
  struct FromStage {
    std::uint64_t pipe = 0;
    std::string payload{};
  };
  struct StageGone {
    std::uint64_t pipe = 0;
  };
  struct Compiled {
    core::SequenceId sequence{};
  };
  using Input = std::variant<core::WorkerEvent,
                             Heard,
                             rpc::ModelDescription,
                             std::unique_ptr<Lockstep>,
                             Followed,
                             std::unique_ptr<Pipe>,
                             FromStage,
                             StageGone,
                             Compiled,
                             rpc::KvAsk,
                             rpc::KvGiven,
                             Peer,
                             GuestHost,
                             GuestMemory,
                             Relieved>;

  void run();
  /// A step that waits for weights gives up for it.
  void push(Input input);
  /// Whether that is more than progress, which the executor hears early.
  [[nodiscard]] static bool is_news(const Input& input);
  [[nodiscard]] Result<std::unique_ptr<DeviceExecutor>> make_executor();
  /// Lets the core take in one event, and logs it.
  void decide(const core::WorkerEvent& event, std::vector<core::WorkerCommand>& commands);
  /// Lets the core hear `event` and all that follows from it at once.
  void tell_core(core::WorkerEvent event);
  void take_in(Input input);
  void take_in(core::WorkerMessage message);
  void give_kv(const rpc::KvAsk& ask);
  void tell_core(std::vector<core::WorkerEvent> events);
  /// Runs a step if there is one to run.
  [[nodiscard]] bool step();
  void report(core::WorkerReport report);
  static void name_adapters(const std::vector<core::AdapterStatus>& adapters,
                            core::DeviceReport& report);
  void carry_out(std::vector<core::WorkerCommand>& commands,
                 std::vector<core::WorkerEvent>& events);
  [[noreturn]] static void give_up(const Error& error);

  rpc::WorkerHello hello_;
  std::unique_ptr<device::Device> device_;
  Outbox& outbox_;
  const GuestTime& guests_;
  Inbox<Input> inbox_{};
  core::WorkerCore core_;
  std::unique_ptr<EventLog> log_{};
  std::unique_ptr<DeviceExecutor> executor_{};
  std::atomic<DeviceExecutor*> early_{nullptr};  ///< For hear(): the same, once there is one.
  rpc::WorkerStats told_{};
  std::thread thread_;
};

}  // namespace heddle::worker
