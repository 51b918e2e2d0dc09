#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "core/manager/events.h"
#include "core/serving.h"
#include "host/host_port.h"
#include "host/offer.h"
#include "serving/ports.h"

namespace heddle::manager {

class LoadRecords;

/// Who decides which model is where and which request goes where, of all hosts and fronts: the
/// shell of ManagerCore. Loop thread only; the loop and all ports outlive it. What it wants of
/// hosts and fronts it may say from within any call.
class Manager final : public serving::ManagerPort, public core::ServingStatus {
 public:
  /// Nothing is decided before configure(). How long switches take goes to `metrics`, and what is
  /// to be remembered of loads to `records`, which it opens; both outlive it. Errors as
  /// EventLog::create.
  static Result<std::unique_ptr<Manager>> create(const boost::asio::any_io_executor& executor,
                                                 const config::Config& config,
                                                 Metrics& metrics,
                                                 LoadRecords& records);
  ~Manager() override;
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// The models that there are to be from now on, and what hosts can do about them, as far as that
  /// is known. Models that are gone end their running requests and fail their waiting ones; those
  /// that are the same go on.
  void configure(const config::Config& config,
                 const std::map<HostId, std::vector<host::Offer>>& offers);
  /// Takes no more requests. `done` is called once all have ended, to which they are made at
  /// `deadline`, and then the external engines.
  void drain(Instant deadline, std::function<void()> done);
  /// Makes the model resident, evicting others as for a request. `done` is called once.
  void load(ModelId model, std::function<void(Result<void>)> done);
  /// Lets the model's running requests end, then evicts it everywhere. `done` is called once.
  void unload(ModelId model, core::EvictionReason why, std::function<void(Result<void>)> done);
  /// Loads what is to be there before anybody asks for it.
  void preload();

  // ---- Hosts ----

  /// A host is there; what it says of its workers follows. Its models are, once it has offered
  /// them.
  void add_host(HostId host, host::HostPort& port, host::HostFacts facts);
  /// Nothing is heard of it any more. It may come back.
  void lose_host(HostId host);
  /// It has left for good: nothing of it is shown any more, and its port is not used.
  void remove_host(HostId host);
  /// What it can do about the configured models.
  void offered(HostId host, std::vector<host::Offer> offers);
  /// What it says, but of requests: that is their front's to say.
  void heard(core::ManagerEvent event);
  /// A worker, or an engine, has been told to load a model; for the time that switches take.
  void told(DeviceId device, ModelId model);

  // ---- Fronts ----

  void add_front(FrontId id, serving::FrontPort& port);
  /// All that the front has not ended, where some of it may not have been heard.
  void adopt(core::FrontState front);
  /// The front is gone, and its requests with it.
  void remove_front(FrontId id);
  /// Whether hosts and fronts have said what they have to tell of themselves. While they have not,
  /// nothing is decided.
  void settle(bool settled);
  void tell(const serving::RequestNews& news) override;
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const override;
  /// Of the model's files, as host::Offer has it; empty where nobody has told of them.
  [[nodiscard]] std::string digest(ModelId model) const;

  [[nodiscard]] std::vector<core::ModelStatus> models() const override;
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override;
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override;
  [[nodiscard]] std::vector<std::string> troubles() const override;

 private:
  class Impl;
  explicit Manager(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::manager
