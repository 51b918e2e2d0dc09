#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "base/ids.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// Whom an answer goes to.
using KvAnswer = std::function<void(rpc::KvGiven)>;

/// KV that workers ask each other for, of this host's and of others' (docs/contracts/kv.md). Each
/// ask is answered once: with nothing where nobody can give any. Loop thread only.
class KvExchange {
 public:
  struct Handlers {
    /// Passes an ask on to the worker of one of this host's devices. False where it has none now.
    std::function<bool(DeviceId, const rpc::KvAsk&)> tell{};
    /// Passes an ask on to the host that it names. Empty: there are no others.
    std::function<void(const rpc::KvAsk&, KvAnswer)> ask_host{};
  };

  explicit KvExchange(Handlers handlers) : handlers_(std::move(handlers)) {}

  /// From a worker here, or, where `here`, from another host: of a device of this one. The answer
  /// has the number of the ask.
  void ask(rpc::KvAsk ask, bool here, KvAnswer answer);
  /// What a worker answers. Ignored where nobody waits for it.
  void given(DeviceId device, rpc::KvGiven given);
  /// The worker of a device has ended: it gives nothing more.
  void ended(DeviceId device);

 private:
  struct Open {
    DeviceId device{};
    std::uint64_t number = 0;  ///< As whoever asks has it.
    KvAnswer answer{};
  };

  Handlers handlers_;
  std::uint64_t asked_ = 0;
  std::map<std::uint64_t, Open> open_{};  ///< By the number that the worker was told.
};

}  // namespace heddle::agent
