#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/agent_core.h"
#include "ledger/ledger.h"

namespace heddle::core {

enum class ReadState : std::uint8_t {
  kPending,  ///< Has pages, waits for the reader.
  kReading,
  kStopping,  ///< The reader was told to stop.
  kStopped,   ///< Incomplete for good, as was wanted.
  kFailed,    ///< Incomplete for good: `error`.
  kComplete,
};

/// The weights of one model in the arena: one copy on this host, beside those that devices made.
struct Image {
  std::vector<PageId> pages{};  ///< In order.
  std::uint64_t bytes = 0;
  std::uint64_t ready_bytes = 0;
  ReadState read = ReadState::kPending;
  Error error{};                 ///< Why it failed.
  std::optional<DeviceId> at{};  ///< The device it was given to; none: it is at the host.
  std::optional<ledger::LeaseId>
      lease{};                   ///< Of its pages in the host's budget, while at the host.
  std::set<DeviceId> copiers{};  ///< Devices that copy from it: its pages must stay as they are.
  bool dropping = false;         ///< An eviction that destroys it is on its way.
  bool orphan = false;           ///< Its worker died and the host has no room: its pages become
                                 ///< that device's when nobody writes or reads them any more.
  Instant last_used{};

  [[nodiscard]] bool being_written() const {
    return read == ReadState::kReading || read == ReadState::kStopping;
  }
  /// Its pages can be put to another use.
  [[nodiscard]] bool quiet() const { return !being_written() && copiers.empty(); }
};

/// A model that was sent to a worker and not evicted yet.
struct Hosted {
  ImageSource source = ImageSource::kGiven;
  policy::Footprint footprint{};
  std::optional<ledger::LeaseId> owed{};  ///< Host pages that PagesReturned will bring back.
};

/// An eviction that was sent and not answered yet.
struct SentEvict {
  ModelId model{};
  std::vector<PageId> pages{};             ///< Given with it.
  std::optional<ledger::LeaseId> lease{};  ///< Host pages that the image will come back to.
  Instant last_used{};
  std::optional<Error> failure{};  ///< Sent because the image failed, not for the manager.
};

/// KV of a model, on pages that this device lends.
struct GuestPair {
  DeviceId hot{};
  WorkerEpoch hot_epoch{};
  std::int64_t recalled = 0;  ///< Pages that are on their way back.
  WorkerEpoch connected{};    ///< The host's life that serves the hot worker; 0: none does.
  /// Of what a GPU lends, what the hot worker does not have yet, as the host's is to share it.
  std::set<PageId> pending{};
  std::set<PageId> unshared{};  ///< Those of them that it has not shared yet.
};

/// An eviction to send: the manager's, or the agent's own after a failed read.
struct WantedEvict {
  EvictFrom order{};
  Instant last_used{};  ///< By this host's clock.
  std::optional<Error> failure{};
};

/// Workers of this host, perhaps with others, that run a model together.
struct Group {
  FormGroup form{};
  bool formed = false;  ///< All of this host are connected.
};

using HostOperation = std::variant<LoadOn, WantedEvict, Borrow, Weave>;

enum class Life : std::uint8_t {
  kDown,  ///< Waits for its pause to end and its pages to be together.
  kStarting,
  kUp,
  kDoomed,  ///< Was told to die; what it says does not count any more.
};

struct WorkerState {
  AgentDevice device{};
  Life life = Life::kDown;
  WorkerEpoch epoch{};
  /// While kDoomed: for nothing that it ran.
  bool blameless = false;
  std::int64_t failures = 0;       ///< Deaths in a row, each soon after its start.
  std::optional<Instant> up_at{};  ///< Since when this life is ready.
  Instant restart_at{};
  std::set<PageId> pool{};  ///< Its pages that hold no given image, free ones on the way included.
  std::map<ModelId, Hosted> models{};
  std::deque<SentEvict> evicts{};
  std::set<ModelId> gave_back{};  ///< Whose image it gave back: it may still map those pages.
  std::deque<HostOperation> operations{};  ///< Not sent yet, in order.

  std::map<ModelId, std::int64_t> asked{};     ///< Loans asked of the worker and not answered yet.
  std::map<ModelId, std::set<PageId>> lent{};  ///< By the engine, or the hot model.
  std::map<ModelId, GuestPair> guests{};       ///< By the hot model.
  std::set<PageId> unbacked{};    ///< Repaid, but not backed by memory yet; in nobody's use.
  std::vector<PageId> arrived{};  ///< In its pool since it was spawned; it is told when it is up.

  /// Lent pages that the hot worker has.
  [[nodiscard]] std::int64_t granted(ModelId model) const {
    const auto pages = lent.find(model);
    const auto pair = guests.find(model);
    return pages == lent.end() ? 0
                               : std::ssize(pages->second) -
                                     (pair == guests.end() ? 0 : std::ssize(pair->second.pending));
  }
  /// Pages that are with no image, nor with the worker.
  [[nodiscard]] std::int64_t away() const {
    std::int64_t count = std::ssize(unbacked);
    for (const auto& [model, pages] : lent) {
      count += std::ssize(pages);
    }
    return count;
  }
};

/// Pages of the host that the image of a model takes.
[[nodiscard]] inline std::int64_t pages_at_host(const AgentModel& model) {
  return model.host_pages > 0 ? model.host_pages : model.footprint.image_pages;
}

/// The state of an AgentCore. What is said to and by workers is in agent_exchange.cc, images and
/// reading in agent_images.cc, what external engines borrow in agent_loans.cc, what is lent to
/// KV of other devices in agent_guests.cc, workers in lockstep in agent_groups.cc.
class AgentCore::Impl {
 public:
  explicit Impl(const AgentOptions& options);

  void step(Instant now, const AgentEvent& event, std::vector<AgentCommand>& commands);
  [[nodiscard]] ModelsByDevice models() const;
  [[nodiscard]] ledger::PoolUsage host_usage() const { return ledger_.usage(ledger::kHostPool); }
  void check_invariants() const;

 private:
  void on(const StartAgent& start);
  void on(const AgentModels& models);
  void on(const LoadOn& load);
  void on(const EvictFrom& evict);
  void on(const FormGroup& form);
  void on(const GroupLinked& linked);
  void on(const GroupCut& cut);
  void on(const Weave& weave);
  void on(const Unweave& unweave);
  void on(const WorkerConnected& connected);
  void on(const WorkerExited& exited);
  void on(const WorkerHung& hung);
  void on(const WorkerSaid& said);
  void on(const ReadProgress& progress);
  void on(const ReadEnded& ended);
  void on(const ImageSpoilt& spoilt);
  void on(const Tick& /*tick*/) {}
  void on(const Borrow& borrow);
  void on(const Repay& repay);
  void on(const PagesBacked& backed);
  void on(const StopAgent& stop);
  void on(const ForgetOrders& forget);

  // Workers' lives.
  void start_workers();
  void take_back_pages(WorkerState& worker);
  void take_back_image(WorkerState& worker, ModelId model, Image& image, const Hosted& hosted);
  void set_timer();

  // Exchange.
  void send_operations();
  bool send(WorkerState& worker, const LoadOn& load);
  bool send(WorkerState& worker, const WantedEvict& evict);
  bool send(WorkerState& worker, const Borrow& borrow);
  bool send(WorkerState& worker, const Weave& weave);
  bool take_loan(WorkerState& worker, const PagesReturned& returned);
  bool miss_loan(WorkerState& worker, const LoadRefused& refused);
  void refuse_loans(WorkerState& worker);
  bool send_given_evict(WorkerState& worker, const WantedEvict& evict, Image& image);
  void send_evict(WorkerState& worker, const WantedEvict& evict, SentEvict sent);
  static bool awaits_answer(const WorkerState& worker, ModelId model);
  void tell_gone(const WorkerState& worker, ModelId model, const std::optional<Error>& failure);
  void heard(WorkerState& worker, const LoadRefused& refused);
  void heard(WorkerState& worker, const EvictRefused& refused);
  void heard(WorkerState& worker, const ModelEvicted& evicted);
  void heard(WorkerState& worker, const PagesReturned& returned);
  void heard(WorkerState& worker, const GuestsReturned& returned);
  void heard(WorkerState& worker, const GuestsShared& shared);
  void heard(WorkerState& worker, const ImageCopied& copied);
  void heard(WorkerState& worker, const SteppedBack& stepped);
  template <class T>
  void heard(WorkerState& /*worker*/, const T& /*report*/) {}
  std::optional<SentEvict> answered(WorkerState& worker, ModelId model);
  void undo_gift(WorkerState& worker, const SentEvict& sent);
  void doom(WorkerState& worker, Error reason, bool blameless = false);

  // Guests.
  static bool recalls_guests(const WorkerState& host);
  void grant_guests(WorkerState& host, ModelId model, const std::vector<PageId>& pages);
  void lend_guests(WorkerState& host, ModelId model, const std::vector<PageId>& pages);
  void share_memory(const WorkerState& host, ModelId model, const std::vector<PageId>& pages);
  void connect_guests(WorkerState& host, ModelId model);
  void lease_guests(const WorkerState& host, ModelId model, const std::set<PageId>& pages);
  void take_home(WorkerState& host,
                 ModelId model,
                 const std::vector<PageId>& pages,
                 bool refused = false);
  void disconnect_host(WorkerState& host);
  void lose_hot(DeviceId hot, WorkerEpoch epoch);
  void give_pages(WorkerState& worker, const std::vector<PageId>& pages);
  void tell_guests(const WorkerState& host, ModelId model, bool refused);

  // Groups.
  void end_groups(DeviceId device, WorkerEpoch epoch, bool blameless);
  void leave_group(DeviceId device, ModelId model);
  void formed(Group& group);
  void end_members(const Group& group, const Error& reason, bool blameless);
  template <class Which>
  void erase_groups(const Which& which) {
    for (const Group& group : groups_) {
      if (which(group) && spans_hosts(group.form)) {
        commands_->push_back(LeaveGroup{.group = group.form.group});
      }
    }
    std::erase_if(groups_, which);
  }
  [[nodiscard]] bool spans_hosts(const FormGroup& form) const;

  // Images.
  Image* image(ModelId model);
  Image* create_image(const AgentModel& model, const LoadOn& load);
  bool make_room(std::int64_t pages, Instant worth_since);
  void start_reader();
  void stop_read(ModelId model, Image& image);
  void fail_image(ModelId model, Image& image, const Error& error);
  void come_home(ModelId model, Image& image, ledger::LeaseId lease);
  void unpin(ModelId model, DeviceId device);
  void drop(ModelId model);
  void drop_unwanted();
  [[nodiscard]] bool abandoned(ModelId model, const Image& image) const;
  void tell_image_gone(ModelId model);
  void tell_image_state(ModelId model, const Image& image);

  std::vector<PageId> take_free(std::int64_t count);
  ledger::LeaseId lease_host(ModelId model, std::int64_t pages);
  WorkerState* live(DeviceId device, WorkerEpoch epoch);
  template <class T>
  void tell(T event) {
    commands_->push_back(TellManager{.event = std::move(event)});
  }

  AgentOptions options_;
  Instant now_{};
  std::vector<AgentCommand>* commands_ = nullptr;
  bool running_ = false;
  std::optional<Instant> timer_{};
  std::uint64_t lives_given_ = 0;

  ledger::Ledger ledger_{};
  std::set<PageId> free_{};  ///< At the host.
  std::map<ModelId, AgentModel> models_{};
  std::map<ModelId, Image> images_{};
  std::deque<ModelId> reads_{};  ///< Waiting for the reader.
  std::optional<ModelId> reading_{};
  std::set<ModelId> fetching_{};  ///< Read beside that.
  std::map<DeviceId, WorkerState> workers_{};
  std::vector<Group> groups_{};  ///< Of workers in lockstep, until their leader is done.
};

}  // namespace heddle::core
