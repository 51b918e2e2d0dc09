#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/manager/manager_core.h"
#include "core/messages.h"
#include "twin/agenda.h"
#include "twin/setup.h"

namespace heddle::twin {

/// What the gateway knows of a request.
struct Request {
  enum class End : std::uint8_t { kNone, kDone, kFailed, kCancelled };

  Ask ask{};
  Instant arrived{};
  std::int64_t most = 0;   ///< Tokens of each answer.
  bool forwarded = false;  ///< To an external engine, whose own affair its tokens are.
  bool held = false;
  bool cut = false;         ///< Its worker may still say what came before it was sent there again.
  bool capped = false;      ///< `most` is what a device had room for.
  bool dispatched = false;  ///< It is at a worker:
  DeviceId device{};        ///< of this device, in this life.
  WorkerEpoch epoch{};
  std::int64_t brought = 0;                       ///< tokens() as it was dispatched there.
  std::vector<std::vector<TokenId>> generated{};  ///< By choice.
  std::vector<bool> finished{};                   ///< Likewise.
  Instant first{};                                ///< Token.
  Instant last{};                                 ///< Token; or when it failed or was cancelled.
  End end = End::kNone;
  Error error{};

  /// Of its longest answer.
  [[nodiscard]] std::int64_t tokens() const;
};

/// The gateway of a host: its requests, by id. CHECK-fails where the manager or a worker breaks the
/// rules: every token is the right one, comes once and in order, and nothing is said about what has
/// ended. One thread.
class Gateway {
 public:
  using OnEvent = std::function<void(const core::ManagerEvent&)>;

  /// `agenda` outlives it. `on_event` tells the manager.
  Gateway(const Agenda& agenda, FrontId front, OnEvent on_event)
      : agenda_(agenda), front_(front), on_event_(std::move(on_event)) {}

  /// Nothing happens before arrive().
  RequestId plan(const Ask& ask);
  /// A prompt and an answer of its model have at most `tokens_max` tokens; nullopt: an external
  /// engine serves it.
  void arrive(RequestId id, std::optional<std::int64_t> tokens_max);
  /// Its client is gone, if it has not ended.
  void cancel(RequestId id);
  /// As when a stop string appears: no more of this choice is needed. False where that is known.
  bool finish_choice(RequestId id, std::uint32_t choice);

  /// What its worker is told.
  core::Submit submit(const core::Dispatch& dispatch);
  void hold(RequestId id);
  void take(const core::TokenEvent& token);
  void fail(const core::FailRequest& failed);
  /// Its requests that are with that life of a worker, which has ended, wait again. Those of an
  /// engine on its device go on.
  core::PlaceLost lose(DeviceId device, WorkerEpoch epoch);
  /// All that have not ended, for a manager that does not know of them, and may hold them again.
  core::FrontState tell_all();
  /// The connection to the host is gone: its requests wait again wherever they are. What their
  /// workers have said still comes.
  std::vector<core::PlaceLost> lose_all();
  /// Whether the request is there: it takes nothing of it from elsewhere.
  [[nodiscard]] bool is_at(RequestId id, DeviceId device, WorkerEpoch epoch) const;
  /// Its worker gave it back: it waits again.
  void take_back(RequestId id) { at(id).dispatched = false; }

  [[nodiscard]] FrontId front() const { return front_; }
  [[nodiscard]] const std::vector<Request>& requests() const { return requests_; }
  [[nodiscard]] const Request& request(RequestId id) const { return requests_.at(index_of(id)); }
  /// So many have ended.
  [[nodiscard]] std::size_t ended() const { return ended_; }

 private:
  [[nodiscard]] Request& at(RequestId id) { return requests_.at(index_of(id)); }
  [[nodiscard]] std::size_t index_of(RequestId id) const {
    return id.value() - first_request(front_).value();
  }
  [[nodiscard]] RequestId id_of(std::size_t index) const {
    return RequestId(first_request(front_).value() + index);
  }
  [[nodiscard]] core::RequestArrived arrival(RequestId id) const;
  void end(Request& request, Request::End how);
  void finish_if_complete(RequestId id);

  const Agenda& agenda_;
  FrontId front_;
  OnEvent on_event_;
  std::vector<Request> requests_{};
  std::size_t ended_ = 0;
};

}  // namespace heddle::twin
