#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "core/serving.h"
#include "serving/external_requests.h"
#include "serving/place.h"
#include "serving/ports.h"
#include "serving/request_table.h"
#include "spec/sampling.h"

namespace heddle::serving {

/// The owner of the requests that have not ended: their records, and who is told of them. It sends
/// them where the manager says, and takes from each place only what it says of requests that are
/// there. Loop thread only; the loop and both ports outlive it.
class Front final : public core::RequestServing, public FrontPort {
 public:
  /// What was dropped is counted in `metrics`, which outlives it.
  Front(boost::asio::any_io_executor executor,
        ManagerPort& manager,
        HostsPort& hosts,
        Metrics& metrics);
  ~Front() override = default;
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  void start(std::shared_ptr<core::RequestRecord> record,
             std::shared_ptr<core::RequestSink> sink) override;
  void finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) override;
  void cancel(RequestId request) override;
  void start_external(std::shared_ptr<core::ExternalRequest> request,
                      std::shared_ptr<core::ExternalSink> sink) override;
  void finish_external(RequestId request) override;
  void retry_external(RequestId request, bool cut) override;

  // ---- What the manager wants ----

  void set_models(std::map<ModelId, core::ServedModel> models) override;
  void carry_out(const core::Dispatch& command) override;
  void carry_out(const core::Hold& command) override;
  void carry_out(const core::FailRequest& command) override;
  void tell_loading(ModelId model, std::uint64_t loaded_bytes) override;

  // ---- What hosts say ----

  void accept(const Place& from, std::vector<core::TokenEvent> tokens);
  /// Whether the request was there, and waits again: then the manager is to hear of it.
  [[nodiscard]] bool accept(const Place& from, const core::RequestReturned& returned);
  /// Whether the request was there: then the manager is to hear of it.
  [[nodiscard]] bool accept(const Place& from, const core::RequestFailed& failed);
  /// The life has ended, and all that it said was accepted: its requests wait again, of which the
  /// manager hears.
  void lose(const Place& place);
  /// A model's external engine has died.
  void lose_engine(ModelId model, const Error& reason);
  /// A model's external engine was suspended, or brought back, with what it answers.
  void note_engine(ModelId model, core::IncidentKind kind);

  // ---- Questions ----

  /// The requests that have not ended, by id, for a manager that does not know of them.
  [[nodiscard]] std::vector<core::Unfinished> unfinished() const;
  /// When the model's engine last sent something of an answer, or was last asked for one; nothing
  /// where nobody waits for its answer.
  [[nodiscard]] std::optional<Instant> silent_since(ModelId model) const;

 private:
  template <class What>
  void soon(What what);
  void tell_soon(const RequestNews& news);
  void give_up(const RequestTable::Entry& entry);
  [[nodiscard]] bool is_at(const Place& from, RequestId request, const std::string& what) const;
  [[nodiscard]] const core::ServedModel* model(ModelId id) const;
  void finish(const RequestTable::Entry& done);
  void fail(RequestId request, const Error& error);
  void forward(ExternalRequests::Entry& entry, DeviceId device);

  boost::asio::any_io_executor executor_;
  ManagerPort& manager_;
  HostsPort& hosts_;
  Metrics& metrics_;
  std::map<ModelId, core::ServedModel> models_{};
  RequestTable requests_{};
  ExternalRequests external_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace heddle::serving
