#pragma once

#include <cstdint>
#include <optional>

#include "core/manager/demand.h"
#include "core/manager/outbox.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Two deaths may be another request's fault; then it runs alone, and the third is its own.
inline constexpr std::int32_t kDeathsInCompany = 2;

/// The requests that have arrived and not ended: each waits in its model's queue, is in flight on
/// one device, or was lost with a worker and is not given up by its front yet.
class RequestQueues {
 public:
  RequestQueues(State& state, Outbox& out, Demand& demand)
      : state_(state), out_(out), demand_(demand) {}

  /// Puts a new request, which may be accepted, into its model's queue. It came `age` ago.
  void arrive(const RequestArrived& arrived, Duration age = {});
  /// Sends a request that waits to an instance that serves: of its model, or of `as`, a cut of
  /// that. Of a model of ours, the answer is from then on no longer than `room`, wherever the
  /// request goes on.
  void send(RequestId id,
            DeviceId device,
            std::optional<std::int64_t> room,
            std::optional<ModelId> as = {});
  /// Says that it waits; once a wait.
  void hold(RequestId id);
  /// Takes a request off its device and puts it into the queue, at the place its age gives it.
  void requeue(RequestId id);
  /// Its worker has died, or nothing is heard of it: until its front says so, too, it is nowhere.
  void lose(RequestId id, const LostPlace& place);
  /// It is where its front says: on an instance of its model, or of `as`, whatever was known of it.
  void found(RequestId id, DeviceId device, std::optional<ModelId> as = {});
  /// It came back from where it waited for memory, or ran: what KV it has there is remembered.
  void recalled(RequestId id);
  /// Has the instance, which is to go, give up the oldest of its requests, to go on elsewhere with
  /// its KV. Nothing where one is on its way.
  void yield(DeviceId device, ModelId id);
  /// Has KV of requests in the stages of `cut` move to `whole`, which serves beside the first of
  /// them. Said once of each time that it comes.
  void gather(DeviceId leader, ModelId cut, ModelId whole);
  /// A request went on in the whole model so.
  void moved(DeviceId device, const KvMoved& moved);

  /// Remembers of the request that has waited longest for the model what was predicted of it.
  void predict(ModelId model, const Prediction& prediction);

  /// Its answer is complete: forgets it. Says what was predicted of it, and what it took, where it
  /// ran where that said.
  void finish(const RequestFinished& finished);
  /// Forgets it. Whoever runs it hears that from its front.
  void cancel(RequestId id);
  /// Ends it with an error.
  void fail(RequestId id, Error error);
  /// Fails those that wait for the model and need more than so many tokens.
  void fail_waiting(ModelId model, const Error& error, std::int64_t longer_than);

  /// A worker, or an engine, died under it. Its deaths since it last came further.
  std::int32_t died(RequestId id);
  /// It came further before its worker died: earlier deaths do not count.
  void absolve(RequestId id);
  /// Nothing else is sent to the device until this request has run there, or never will.
  void keep_alone(DeviceId device, RequestId id);
  void release(DeviceId device);
  /// Something comes to the device: what runs there is not undisturbed.
  void disturb(DeviceId device);
  /// The engine did not take a request: it is sent none before `until`.
  void rest(DeviceId device, ModelId model, Instant until);
  /// Why the model is not loaded at once, if it is not. True when that has changed.
  bool waits_for(ModelId model, std::optional<policy::PlacementReason> reason);

 private:
  void wait(RequestId id);
  void wait_no_more(const RequestState& request);
  void leave(RequestId id);
  Instance* find(const KvSource& source);
  void owe(RequestId id);
  void settle(RequestId id);
  void end(RequestId id, bool served);

  State& state_;
  Outbox& out_;
  Demand& demand_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace heddle::core::manager
