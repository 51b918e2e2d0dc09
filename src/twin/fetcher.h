#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/agent_core.h"
#include "twin/agenda.h"
#include "twin/contents.h"
#include "twin/faults.h"
#include "twin/fetch_link.h"
#include "twin/setup.h"

namespace heddle::twin {

/// Fetches images of models that come over a network, beside each other, over the host's link: as
/// agent::ImageFetcher does. What has come of a model's files is there for all that read them:
/// its stages, the whole, and other hosts. One thread.
class Fetcher {
 public:
  using OnEvent = std::function<void(const core::AgentEvent&)>;
  /// What a host is that can be asked; null where it is away.
  using FindPeer = std::function<Fetcher*(HostId)>;

  /// What surrounds the host outlives it; `contents` may be null.
  Fetcher(std::uint64_t nic,
          const Paths& paths,
          Agenda& agenda,
          Faults& faults,
          Contents* contents,
          FindPeer find_peer,
          OnEvent on_event)
      : paths_(paths),
        agenda_(agenda),
        faults_(faults),
        contents_(contents),
        find_peer_(std::move(find_peer)),
        on_event_(std::move(on_event)),
        link_(nic, paths.fetch, agenda) {}

  /// It fetches nothing of this model now, which outlives the fetch.
  void start(core::StartRead read, const TwinModel& model);
  /// It stops after what is coming. Of no effect where it is not fetched.
  void cancel(ModelId model);
  [[nodiscard]] bool fetches(ModelId model) const { return running_.contains(model); }

 private:
  struct Running {
    core::StartRead read{};
    const TwinModel* model = nullptr;
    FetchLink::Member member{};
    std::size_t next = 0;      ///< Of TwinModel::records.
    std::uint64_t done = 0;    ///< Bytes of those before.
    std::uint64_t asked = 0;   ///< Bytes that it may still take.
    std::uint64_t number = 0;  ///< No other fetch has it.
    bool stops = false;
  };
  /// What there is of a model's files, and what somebody fetches: numbers of records.
  struct Files {
    std::set<std::uint64_t> there{};
    std::set<std::uint64_t> coming{};
  };

  void go_on(ModelId model);
  void go_on_later(ModelId model, Duration after);
  void fetch(ModelId model);
  void take(ModelId model, std::uint64_t bytes);
  void pass(ModelId model, std::uint64_t bytes);
  void came(ModelId model);
  void end(ModelId model, std::optional<Error> error);
  [[nodiscard]] bool has(ModelId source, std::uint64_t record) const;
  [[nodiscard]] Fetcher* peer_for(const Running& running);

  Paths paths_;
  Agenda& agenda_;
  Faults& faults_;
  Contents* contents_;
  FindPeer find_peer_;
  OnEvent on_event_;
  FetchLink link_;
  std::optional<FetchLink::Member> giving_{};  ///< To other hosts.
  std::map<ModelId, Files> files_{};           ///< By source.
  std::map<ModelId, Running> running_{};
  std::uint64_t begun_ = 0;
};

}  // namespace heddle::twin
