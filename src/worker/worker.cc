#include "worker/worker.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "base/self_process.h"
#include "base/thread.h"
#include "collective/shared_collective.h"
#include "core/codec.h"
#include "device/cpu/arena.h"
#include "device/registry.h"
#include "rpc/link.h"
#include "rpc/messages.h"
#include "spec/pipe_stage.h"
#include "worker/engine_loop.h"
#include "worker/guest_hosts.h"
#include "worker/lockstep.h"
#include "worker/outbox.h"
#include "worker/precedence.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

namespace heddle::worker {

namespace {

[[noreturn]] void end(int status) {
  log::flush();
  std::_Exit(status);  // Nothing here needs saving, and threads are at work on what would be freed.
}

/// Confines all threads to come to `cores`.
Result<void> pin(const std::vector<int>& cores) {
  if (cores.empty()) {
    return {};
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    CPU_SET(static_cast<std::size_t>(core), &set);
  }
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) {
    std::string list;
    for (const int core : cores) {
      list += (list.empty() ? "" : ",") + std::to_string(core);
    }
    return Error{Code::kInvalidArgument,
                 "run on cores " + list + ": " + std::strerror(errno) +
                     "; `nproc` and `taskset -p $$` tell which there are"};
  }
  return {};
}

/// The process: a link to the parent, and what the first message makes of it.
class Worker {
 public:
  explicit Worker(int fd)
      : link_(loop_.get_executor(),
              rpc::Descriptor(fd),
              {.on_frame = [this](rpc::Frame frame) { hear(std::move(frame)); },
               .on_closed = [](const Error&) { end(EXIT_SUCCESS); },
               .on_drained = [this] { outbox_.link_drained(); }}),
        outbox_(loop_.get_executor(),
                link_,
                {.on_failed = [](const Error& error) { fail(error); },
                 .on_relieved = [this] { engine_->hear_relieved(); }}) {}

  [[noreturn]] void run() {
    beat();
    loop_.run();
    end(EXIT_SUCCESS);
  }

 private:
  [[noreturn]] static void fail(const Error& error) {
    log::error("worker ends", {{"error", error.message}});
    end(EXIT_FAILURE);
  }

  /// Says four times a second that this lives, unless nobody listens.
  void beat() {
    if (epoch_ && link_.queued_bytes() < kUnheardBytes) {
      rpc::Beat beat;
      if (engine_ != nullptr) {
        beat.threads = engine_->pulses();
      }
      outbox_.send({.epoch = *epoch_, .body = std::move(beat)});
    }
    beats_.expires_after(rpc::kBeatPeriod);
    beats_.async_wait([this](const auto& /*never cancelled*/) { beat(); });
  }

  void hear(rpc::Frame frame) {
    Result<rpc::ToWorker> message = rpc::decode_to_worker(frame.payload);
    if (!message) {
      fail(message.error());
    }
    if (auto* hello = std::get_if<rpc::WorkerHello>(&*message)) {
      begin(std::move(*hello), std::move(frame.descriptors));
    } else if (std::holds_alternative<rpc::Shutdown>(*message)) {
      end(EXIT_SUCCESS);
    } else if (engine_ == nullptr) {
      fail({Code::kCorrupt, "told what to do before being told what it is"});
    } else if (auto* model = std::get_if<rpc::ModelDescription>(&*message)) {
      if (!spec::is_stage(model->spec.stage, model->spec.layers)) {
        fail({Code::kCorrupt, "told of a model that is no stage of its layers"});
      }
      engine_->hear(std::move(*model));
    } else if (const auto* join = std::get_if<rpc::JoinGroup>(&*message)) {
      join_group(*join, std::move(frame.descriptors));
    } else if (const auto* pipe = std::get_if<rpc::JoinPipe>(&*message)) {
      join_pipe(*pipe, std::move(frame.descriptors));
    } else if (const auto* peer = std::get_if<rpc::MeetPeer>(&*message)) {
      if (frame.descriptors.size() != 1) {
        fail({Code::kCorrupt, "another GPU's worker comes without its socket"});
      }
      engine_->hear(Peer{
          .gpu = peer->gpu, .assists = peer->assists, .socket = std::move(frame.descriptors[0])});
    } else if (const auto* rank = std::get_if<rpc::MeetRank>(&*message)) {
      meet_rank(*rank, std::move(frame.descriptors));
    } else if (const auto* guests = std::get_if<rpc::HostGuests>(&*message)) {
      host_guests(*guests, frame.descriptors);
    } else if (const auto* share = std::get_if<rpc::ShareGuests>(&*message)) {
      share_guests(*share, frame.descriptors);
    } else if (auto* memory = std::get_if<rpc::GuestMemory>(&*message)) {
      if (frame.descriptors.size() != memory->pages.size()) {
        fail({Code::kCorrupt, "pages of another GPU come without a descriptor for each"});
      }
      engine_->hear(
          GuestMemory{.of = std::move(*memory), .descriptors = std::move(frame.descriptors)});
    } else if (const auto* host = std::get_if<rpc::MeetHost>(&*message)) {
      engine_->hear(GuestHost{
          .model = host->model,
          .area = frame.descriptors.empty() ? Descriptor() : std::move(frame.descriptors[0])});
    } else if (auto* ask = std::get_if<rpc::KvAsk>(&*message)) {
      engine_->hear(std::move(*ask));
    } else if (auto* given = std::get_if<rpc::KvGiven>(&*message)) {
      engine_->hear(std::move(*given));
    } else {
      engine_->hear(std::get<core::WorkerMessage>(std::move(*message)));
    }
  }

  void begin(rpc::WorkerHello hello, std::vector<rpc::Descriptor> descriptors) {
    if (engine_ != nullptr || descriptors.size() != 1) {
      fail({Code::kCorrupt, "a hello comes once, with the arena's descriptor"});
    }
    const WorkerEpoch epoch = hello.epoch;
    const std::string name = hello.name;
    const Result<void> begun =
        with_threads(name, [&] { return start_engine(std::move(hello), descriptors[0].get()); });
    if (!begun) {
      // The parent ends this process when it has read that.
      outbox_.send({.epoch = epoch, .body = rpc::HelloAck{.failure = begun.error()}});
    }
  }

  Result<void> start_engine(rpc::WorkerHello hello, int arena_fd) {
    log::configure({.level = hello.log_level, .format = hello.log_format, .process = hello.name});
    if (hello.pace != rpc::Pace{}) {
      take_precedence();
    }
    epoch_ = hello.epoch;
    gpu_ = hello.gpu;
    Result<std::unique_ptr<device::Device>> device = make_device(hello, arena_fd);
    if (!device) {
      return device.error();
    }
    if (hello.gpu.has_value()) {
      guest_hosts_ = std::make_unique<GuestHosts>(**device, guest_time_);
    }
    // Not deleted, nor is the device: its thread ends with the process.
    engine_ = new EngineLoop(std::move(hello), std::move(*device), outbox_, guest_time_);
    return {};
  }

  void host_guests(const rpc::HostGuests& guests, const std::vector<rpc::Descriptor>& area) {
    if (area.empty()) {
      guest_hosts_->lend(guests.model, guests.pages);
    } else {
      guest_hosts_->serve(guests.model, area[0], guests.pages);
    }
  }

  void share_guests(const rpc::ShareGuests& share, const std::vector<rpc::Descriptor>& known) {
    if (!known.empty()) {
      if (known.size() != share.pages.size()) {
        fail({Code::kCorrupt, "pages that were shared come without a descriptor for each"});
      }
      if (const auto done = guest_hosts_->share_again(share.model, share.pages, known); !done) {
        log::warning("pages lent in a former life are not served",
                     {{"model", share.model}, {"error", done.error().message}});
      }
      return;
    }
    auto shared = guest_hosts_->share(share.model, share.pages);
    core::GuestsShared said{.model = share.model, .pages = share.pages};
    if (!shared) {
      said.failure = shared.error();
    }
    outbox_.send({.epoch = *epoch_, .body = std::move(said)},
                 shared ? std::move(*shared) : std::vector<rpc::Descriptor>());
  }

  /// Keeps the socket until the group is joined.
  void meet_rank(const rpc::MeetRank& other, std::vector<rpc::Descriptor> descriptors) {
    if (descriptors.size() != 1) {
      fail({Code::kCorrupt, "another rank's worker comes without its socket"});
    }
    ranks_met_[other.model][other.rank] = std::move(descriptors[0]);
  }

  /// What this rank has of the others, where it is on a GPU and has a socket to each of them.
  std::optional<RankLinks> links_of(const rpc::JoinGroup& join,
                                    std::shared_ptr<collective::SharedArea> area) {
    auto all = std::exchange(ranks_met_, {});
    auto met = std::move(all[join.model]);
    if (!gpu_ || std::ssize(met) != join.ranks - 1) {
      return std::nullopt;
    }
    RankLinks links{.gpu = *gpu_,
                    .rank = join.rank,
                    .sockets = std::vector<Descriptor>(static_cast<std::size_t>(join.ranks)),
                    .area = std::move(area)};
    for (auto& [rank, socket] : met) {
      if (rank >= join.ranks || rank == join.rank) {
        fail({Code::kCorrupt, "a socket to a rank that there is not"});
      }
      links.sockets[static_cast<std::size_t>(rank)] = std::move(socket);
    }
    return links;
  }

  /// The first descriptor is the group's memory, the others sockets as rpc::JoinGroup has them.
  void join_group(const rpc::JoinGroup& join, std::vector<rpc::Descriptor> descriptors) {
    const bool leads = join.rank == 0;
    if (std::ssize(descriptors) != (leads ? join.ranks : 2)) {
      fail({Code::kCorrupt, "a group with too few or too many sockets"});
    }
    auto group = collective::SharedCollective::attach(descriptors[0].get(), join.rank, join.ranks);
    if (!group) {
      fail(group.error());
    }
    descriptors.erase(descriptors.begin());
    if (!leads) {
      leaders_[join.model] = std::make_unique<rpc::Link>(
          loop_.get_executor(),
          std::move(descriptors[0]),
          rpc::Link::Handlers{
              .on_frame = [this,
                           shard = join.model](const rpc::Frame& frame) { follow(shard, frame); },
              .on_closed = [](const Error&) {}});  // It has left; or the parent ends this
      descriptors.clear();                         // process, too.
    }
    auto links = links_of(join, (*group)->area());
    engine_->hear(std::make_unique<Lockstep>(
        join.model, std::move(*group), std::move(descriptors), std::move(links)));
  }

  void join_pipe(const rpc::JoinPipe& join, std::vector<rpc::Descriptor> sockets) {
    if (sockets.size() != 2) {
      fail({Code::kCorrupt, "a pipeline without a socket to each neighbour"});
    }
    engine_->hear(std::make_unique<Pipe>(
        loop_.get_executor(),
        join,
        std::move(sockets[0]),
        std::move(sockets[1]),
        Pipe::Handlers{.on_payload =
                           [this](std::uint64_t pipe, std::string payload) {
                             engine_->hear_stage(pipe, std::move(payload));
                           },
                       .on_closed = [this](std::uint64_t pipe) { engine_->hear_stage_gone(pipe); },
                       .on_failed = [](const Error& error) { fail(error); }}));
  }

  void follow(ModelId shard, const rpc::Frame& frame) {
    Result<core::WorkerCommand> command = core::decode_worker_command(frame.payload);
    if (!command) {
      fail({command.error().code, "the leader of the group: " + command.error().message});
    }
    if (!is_for_engine(*command)) {
      fail({Code::kCorrupt, "the leader of the group says what is not for an engine"});
    }
    engine_->hear_leader(shard, std::move(*command));
  }

  Result<std::unique_ptr<device::Device>> make_device(const rpc::WorkerHello& hello, int arena_fd) {
    if (const Result<void> pinned = pin(hello.cores); !pinned) {
      return pinned.error();
    }
    Result<device::Arena> arena = device::Arena::attach(arena_fd, hello.page_bytes);
    if (!arena) {
      return arena.error();
    }
    const std::uint64_t pages = hello.gpu.has_value()
                                    ? static_cast<std::uint64_t>(hello.device_pages)
                                    : arena->page_count();
    for (const PageId page : hello.pages) {
      if (page.value() >= pages) {
        return Error{Code::kCorrupt,
                     "pool with page " + std::to_string(page.value()) + "; there are " +
                         std::to_string(pages)};
      }
    }
    device::DeviceOptions options = device::CpuDeviceOptions{.cores = hello.cores};
    if (!hello.gpu.has_value()) {
      guest_hosts_ = std::make_unique<GuestHosts>(arena->base(),
                                                  static_cast<std::int64_t>(hello.page_bytes),
                                                  hello.pace.context,
                                                  guest_time_);
    }
    if (hello.gpu.has_value()) {
      options = device::CudaDeviceOptions{.ordinal = *hello.gpu,
                                          .page_bytes = hello.page_bytes,
                                          .bytes = pages * hello.page_bytes,
                                          .only = hello.pages};
    }
    return device::make_device(options, std::move(*arena));
  }

  /// With so much unsent, who listens is behind, or stopped, and hears the next beats in time.
  static constexpr std::size_t kUnheardBytes = std::size_t{64} << 10U;

  boost::asio::io_context loop_{1};
  boost::asio::steady_timer beats_{loop_};
  std::optional<WorkerEpoch> epoch_{};
  std::optional<int> gpu_{};
  /// Sockets to the other ranks of a group that is to be joined: by shard and rank.
  std::map<ModelId, std::map<std::int64_t, Descriptor>> ranks_met_{};
  rpc::Link link_;
  Outbox outbox_;
  EngineLoop* engine_ = nullptr;
  /// Of groups that this worker follows, by its shard.
  std::map<ModelId, std::unique_ptr<rpc::Link>> leaders_{};
  GuestTime guest_time_{};
  std::unique_ptr<GuestHosts> guest_hosts_{};  ///< Uses the arena's mapping, or the GPU.
};

}  // namespace

void run(int fd) {
  follow_parent();
  Worker worker(fd);
  worker.run();
}

}  // namespace heddle::worker
