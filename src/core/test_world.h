#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "core/agent_core.h"
#include "core/manager/manager_core.h"
#include "core/test_worker.h"
#include "core/test_world_options.h"
#include "core/worker_core.h"

/// For tests: the three cores in virtual time, between a modelled gateway, reader and workers, with
/// random delays and faults from a seed. Everything is checked with HEDDLE_CHECK, so that a seed
/// that fails can be run again under a debugger.
namespace heddle::core::test {

using namespace std::chrono_literals;

class CoreWorld {
 public:
  explicit CoreWorld(const WorldOptions& options)
      : options_(options), rng_(options.seed), agent_(agent_options(options)) {
    std::int64_t arena = options.host_pages;
    for (int i = 0; i < options.devices; ++i) {
      arena += options.pages_of(i);
    }
    arena_.resize(static_cast<std::size_t>(arena));
    for (int i = 0; i < options.models; ++i) {
      add_model(i);
    }
    configure();
    agent_step(StartAgent{});
    plan_requests();
    plan_faults();
  }

  /// Runs until nothing is left to happen; then every request has ended.
  void run() {
    while (!agenda_.empty() && !over()) {
      HEDDLE_CHECK(++happenings_ < 400'000);
      auto next = agenda_.extract(agenda_.begin());
      now_ = next.key();
      next.mapped()();
      settle();
    }
    for (const auto& [id, record] : records_) {
      HEDDLE_CHECK(record.end != Record::End::kNone);
    }
    for (const DeviceStatus& device : manager_.devices()) {
      HEDDLE_CHECK(device.up);
    }
    HEDDLE_CHECK(tickets_asked_ == tickets_answered_);
  }

  /// Nothing is left to happen but that the manager looks ahead.
  [[nodiscard]] bool over() const {
    const auto ended = [](const auto& entry) { return entry.second.end != Record::End::kNone; };
    const auto up = [](const DeviceStatus& device) { return device.up; };
    const std::vector<DeviceStatus> devices = manager_.devices();
    return agenda_.size() == timers_ && tickets_asked_ == tickets_answered_ &&
           std::all_of(devices.begin(), devices.end(), up) &&
           std::all_of(records_.begin(), records_.end(), ended);
  }

  [[nodiscard]] const std::map<RequestId, Record>& records() const { return records_; }
  [[nodiscard]] const ManagerCore& manager() const { return manager_; }
  [[nodiscard]] std::uint64_t loads() const { return loads_; }
  [[nodiscard]] std::uint64_t reads() const { return reads_; }
  /// Groups formed, and workers ended because another of their group had died.
  [[nodiscard]] std::size_t groups() const { return connected_.size(); }
  [[nodiscard]] std::uint64_t companions() const { return companions_; }
  [[nodiscard]] bool is_sharded(ModelId model) const { return shards_.contains(model); }

  template <class Event>
  struct Heard {
    Instant at{};
    Event event{};
  };
  /// All that the manager and the agent heard and wanted, for replay.
  std::vector<Heard<ManagerEvent>> manager_heard;
  std::vector<ManagerCommand> manager_wanted;
  std::vector<Heard<AgentEvent>> agent_heard;
  std::vector<AgentCommand> agent_wanted;
  /// Of every life of every worker.
  std::vector<std::shared_ptr<ModelledWorker>> lives;

  [[nodiscard]] Instant now() const { return now_; }

  static AgentOptions agent_options(const WorldOptions& options) {
    AgentOptions agent{.host_pages = options.host_pages,
                       .restart_first = 1ms,
                       .restart_most = 20ms,
                       .restart_calm = 1s};
    for (int i = 0; i < options.devices; ++i) {
      agent.devices.push_back({.id = DeviceId(static_cast<std::uint64_t>(i)),
                               .pages = options.pages_of(i),
                               .copy = options.copy});
    }
    return agent;
  }

 private:
  using Link = std::pair<Instant, Instant>;  ///< When the last message each way arrives.

  Duration between(Duration least, Duration most) {
    const auto range = static_cast<std::uint64_t>((most - least).count()) + 1;
    return least + Duration{static_cast<Duration::rep>(rng_.below(range))};
  }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most - least) + 1));
  }
  void at(Instant when, std::function<void()> what) { agenda_.emplace(when, std::move(what)); }

  // ---- Configuration and load ----

  void add_model(int index) {
    const std::int64_t drawn = between(2, 7);
    const std::int64_t image = options_.image_pages > 0 ? options_.image_pages : drawn;
    AgentModel model{.id = ModelId(++models_made_),
                     .image_bytes = static_cast<std::uint64_t>(image) * kPageBytes - 17,
                     .footprint = {.image_pages = image,
                                   .overhead_pages = between(0, 2),
                                   .min_kv_pages = 1,
                                   .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}}};
    model.footprint.graph_pages = index < options_.sharded ? 0 : options_.graph_pages;
    ManagerModel placed{.id = model.id,
                        .name = "m" + std::to_string(model.id.value()),
                        .image_bytes = model.image_bytes,
                        .context = 200,
                        .pin = options_.pin_one && index == 0,
                        .min_residence = options_.min_residence,
                        .slo = {.ttft = options_.ttft},
                        .batch = options_.batch};
    agent_models_[model.id] = model;
    if (index < options_.sharded) {
      add_shard(model, placed);
    } else {
      for (int i = 0; i < options_.devices; ++i) {
        placed.footprints[DeviceId(static_cast<std::uint64_t>(i))] = model.footprint;
      }
    }
    manager_models_[placed.id] = placed;
  }

  /// Shards a model in two equal parts, for every two devices.
  void add_shard(AgentModel model, ManagerModel& placed) {
    model.id = ModelId(++models_made_);
    agent_models_[model.id] = model;
    ManagerModel shard = placed;
    shard.id = model.id;
    shard.part_of = placed.id;
    for (int i = 0; i + 1 < options_.devices; i += 2) {
      const DeviceId leader(static_cast<std::uint64_t>(i));
      const DeviceId follower(static_cast<std::uint64_t>(i + 1));
      placed.footprints[leader] = shard.footprints[follower] = model.footprint;
      placed.groups[leader] = {{.model = shard.id, .device = follower}};
    }
    shards_[placed.id] = shard;
  }

  void configure() {
    Configure configure{.options = {.drain_after = options_.drain_after,
                                    .load_retry_first = 1ms,
                                    .load_cooldown = 10ms,
                                    .planner = options_.planner}};
    AgentModels models;
    for (const auto& [id, model] : manager_models_) {
      configure.models.push_back(model);
      models.models.push_back(agent_models_.at(id));
      if (const auto shard = shards_.find(id); shard != shards_.end()) {
        configure.models.push_back(shard->second);
        models.models.push_back(agent_models_.at(shard->second.id));
      }
    }
    for (int i = 0; i < options_.devices; ++i) {
      configure.devices.push_back({.id = DeviceId(static_cast<std::uint64_t>(i)),
                                   .name = "d",
                                   .pages = options_.pages_of(i),
                                   .page_bytes = kPageBytes});
    }
    agent_step(models);
    manager_step(configure);
  }

  void plan_requests() {
    for (int i = 0; i < options_.requests; ++i) {
      at(now_ + between(0ms, options_.arrivals), [this] { arrive(); });
    }
  }

  /// As ManagerCore has it, which may not have heard of the model yet.
  [[nodiscard]] std::int64_t tokens_max(const ManagerModel& model) const {
    const auto& [device, footprint] = *model.footprints.rbegin();  // The largest.
    const std::int64_t pages = options_.pages_of(static_cast<int>(device.value())) -
                               footprint.image_pages - footprint.overhead_pages;
    return policy::tokens_that_fit(footprint.kv, pages, model.context);
  }

  void arrive() {
    const RequestId id(++requests_made_);
    const auto skip = rng_.below(manager_models_.size());
    const auto model = std::next(manager_models_.begin(), static_cast<std::ptrdiff_t>(skip));
    Record& record = records_[id];
    record = {.id = id, .model = model->first, .max_tokens = between(1, 30), .arrived = now_};
    if (options_.uneven_pages > 0 && rng_.below(3) == 0) {
      record.max_tokens = between(30, 150);
      record.open_ended = rng_.below(2) == 0;
    }
    record.prompt.resize(static_cast<std::size_t>(between(1, options_.prompt_tokens)));
    const auto choices = static_cast<std::size_t>(between(1, 2));
    record.generated.resize(choices);
    record.finished.resize(choices);
    record.max_tokens =
        std::min(record.max_tokens, tokens_max(model->second) - std::ssize(record.prompt));
    record.priority = static_cast<std::int32_t>(rng_.below(options_.priorities ? 2 : 1));
    RequestArrived arrived{.request = id,
                           .model = record.model,
                           .priority = record.priority,
                           .prompt_tokens = std::ssize(record.prompt),
                           .max_tokens = record.max_tokens,
                           .open_ended = record.open_ended};
    if (options_.cancels && rng_.below(8) == 0) {
      arrived.deadline = now_ + between(1ms, 60ms);
    }
    manager_step(arrived);
    if (options_.cancels && rng_.below(4) == 0) {
      at(now_ + between(0ms, 50ms), [this, id] { cancel(id); });
    }
    if (options_.cancels && rng_.below(6) == 0) {
      at(now_ + between(0ms, 50ms), [this, id] { finish_first_choice(id); });
    }
  }

  void cancel(RequestId id) {
    Record& record = records_.at(id);
    if (record.end == Record::End::kNone) {
      record.end = Record::End::kCancelled;
      record.ended = now_;
      manager_step(RequestCancelled{.request = id});
    }
  }

  /// As when a stop string appears: the gateway needs no more of the first choice.
  void finish_first_choice(RequestId id) {
    Record& record = records_.at(id);
    if (record.end != Record::End::kNone || record.finished[0]) {
      return;
    }
    record.finished[0] = true;
    const auto device = dispatched_.find(id);
    if (device != dispatched_.end()) {
      send(device->second.first, device->second.second, FinishChoice{.request = id, .choice = 0});
    }
    finish_if_complete(record);
  }

  void finish_if_complete(Record& record) {
    for (const bool finished : record.finished) {
      if (!finished) {
        return;
      }
    }
    record.end = Record::End::kDone;
    record.ended = now_;
    RequestFinished finished{.request = record.id};
    if (record.first_token != Instant{}) {
      finished.ttft = record.first_token - record.arrived;
    }
    manager_step(finished);
  }

  void plan_faults() {
    for (int i = 0; i < options_.kills; ++i) {
      at(now_ + between(0ms, options_.arrivals), [this] {
        const auto worker = lives.empty() ? nullptr : lives[rng_.below(lives.size())];
        if (worker != nullptr && rng_.below(4) == 0) {
          agent_step(WorkerHung{
              worker->device(), worker->epoch(), false, {Code::kUnavailable, "it hangs"}});
        } else if (worker != nullptr) {
          kill(worker->device());
        }
      });
    }
    for (int i = 0; options_.admin && i < 12; ++i) {
      at(now_ + between(0ms, options_.arrivals), [this] {
        const auto skip = static_cast<std::ptrdiff_t>(rng_.below(manager_models_.size()));
        const ModelId model = std::next(manager_models_.begin(), skip)->first;
        const TicketId ticket(++tickets_made_);
        tickets_asked_.insert(ticket);
        if (rng_.below(2) == 0) {
          manager_step(AdminLoad{.ticket = ticket, .model = model});
        } else {
          manager_step(AdminUnload{.ticket = ticket, .model = model});
        }
      });
    }
    for (int i = 0; options_.reloads && i < 4; ++i) {
      at(now_ + between(0ms, options_.arrivals), [this] {
        const auto skip = static_cast<std::ptrdiff_t>(rng_.below(manager_models_.size()));
        manager_models_.erase(std::next(manager_models_.begin(), skip));
        add_model(1);
        configure();
      });
    }
  }

  void kill(DeviceId device) {
    const auto found = running_.find(device);
    if (found == running_.end()) {
      return;
    }
    const std::shared_ptr<ModelledWorker> worker = running_.extract(found).mapped();
    worker->die();
    const Instant heard = std::max(now_, links_[device].second) + between(0ms, 2ms);
    at(heard, [this, worker] {
      agent_step(WorkerExited{.device = worker->device(), .epoch = worker->epoch()});
    });
  }

  // ---- The serve process ----

  void manager_step(const ManagerEvent& event) { pending_.emplace_back(event); }
  void agent_step(const AgentEvent& event) { pending_.emplace_back(event); }

  void settle() {
    while (!pending_.empty()) {
      const auto event = std::move(pending_.front());
      pending_.pop_front();
      if (const auto* manager = std::get_if<ManagerEvent>(&event)) {
        std::vector<ManagerCommand> commands;
        manager_.step(now_, *manager, commands);
        manager_.check_invariants();
        manager_heard.push_back({now_, *manager});
        for (const ManagerCommand& command : commands) {
          manager_wanted.push_back(command);
          std::visit([this](const auto& concrete) { perform(concrete); }, command);
        }
      } else {
        std::vector<AgentCommand> commands;
        agent_.step(now_, std::get<AgentEvent>(event), commands);
        agent_.check_invariants();
        agent_heard.push_back({now_, std::get<AgentEvent>(event)});
        for (const AgentCommand& command : commands) {
          agent_wanted.push_back(command);
          std::visit([this](const auto& concrete) { perform(concrete); }, command);
        }
      }
    }
  }

  void send(DeviceId device, WorkerEpoch epoch, const WorkerMessage& message) {
    const auto found = running_.find(device);
    if (found == running_.end() || found->second->epoch() != epoch) {
      return;
    }
    Instant& last = links_[device].first;
    last = std::max(last, now_ + between(10us, 500us));
    at(last, [worker = found->second, message] { worker->receive(message); });
  }

  void receive(const ModelledWorker& worker, const WorkerReport& report) {
    Instant& last = links_[worker.device()].second;
    last = std::max(last, now_ + between(10us, 500us));
    at(last, [this, device = worker.device(), epoch = worker.epoch(), report] {
      if (const auto* tokens = std::get_if<TokensProduced>(&report)) {
        for (const TokenEvent& token : tokens->tokens) {
          take(token);
        }
      } else {
        agent_step(WorkerSaid{.device = device, .epoch = epoch, .report = report});
      }
    });
  }

  void take(const TokenEvent& token) {
    Record& record = records_.at(token.request);
    auto& generated = record.generated[token.choice];
    if (record.end != Record::End::kNone || record.finished[token.choice] ||
        token.position < std::ssize(generated)) {
      return;  // Late, or a duplicate.
    }
    HEDDLE_CHECK(token.position == std::ssize(generated));
    HEDDLE_CHECK(token.token == token_at(record.prompt, token.choice, token.position));
    generated.push_back(token.token);
    if (record.first_token == Instant{}) {
      record.first_token = now_;
    }
    if (token.finish != spec::FinishReason::kNone) {
      HEDDLE_CHECK(std::ssize(generated) == record.max_tokens);
      record.finished[token.choice] = true;
      finish_if_complete(record);
    }
  }

  // ---- Commands of the manager ----

  void perform(const LoadOn& command) {
    ++loads_;
    agent_step(command);
  }
  void perform(const EvictFrom& command) { agent_step(command); }
  void perform(const FormGroup& command) { agent_step(command); }
  void perform(const Dispatch& command) {
    Record& record = records_.at(command.request);
    HEDDLE_CHECK(record.end == Record::End::kNone);
    HEDDLE_CHECK(!shards_.contains(record.model) ||
                 connected_.contains({command.device, command.epoch, record.model}));
    const std::int64_t room = command.tokens - std::ssize(record.prompt);
    HEDDLE_CHECK(record.open_ended ? room > 0 : room >= record.max_tokens);
    HEDDLE_CHECK(!record.dispatched || room == record.max_tokens);
    record.max_tokens = std::min(record.max_tokens, room);
    record.dispatched = true;
    dispatched_[command.request] = {command.device, command.epoch};
    Submit submit{.request = command.request,
                  .model = record.model,
                  .prompt = record.prompt,
                  .age = now_ - record.arrived,
                  .due = command.due - now_,
                  .priority = record.priority,
                  .cache_salt = record.id.value() % 5 == 0 ? "another" : ""};
    for (std::size_t i = 0; i < record.generated.size(); ++i) {
      if (!record.finished[i]) {
        SubmitChoice choice{.generated = record.generated[i]};
        choice.params.choice = static_cast<std::uint32_t>(i);
        choice.params.max_tokens = record.max_tokens;
        choice.params.grammar.kind =
            record.id.value() % 4 == 0 ? spec::GrammarKind::kRegex : spec::GrammarKind::kNone;
        submit.choices.push_back(std::move(choice));
      }
    }
    send(command.device, command.epoch, submit);
  }
  void perform(const Hold& command) { HEDDLE_CHECK(held_.insert(command.request).second); }
  void perform(const TellWorker& command) { send(command.device, command.epoch, command.message); }
  void perform(const FailRequest& command) {
    Record& record = records_.at(command.request);
    HEDDLE_CHECK(record.end == Record::End::kNone);
    HEDDLE_CHECK(!command.error.message.empty());
    record.end = Record::End::kFailed;
    record.ended = now_;
    record.error = command.error;
  }
  void perform(const AdminDone& command) {
    HEDDLE_CHECK(tickets_asked_.contains(command.ticket));
    HEDDLE_CHECK(tickets_answered_.insert(command.ticket).second);
  }
  void perform(const Drained& /*command*/) {}
  void perform(const WakeAt& command) {
    HEDDLE_CHECK(command.at > now_);
    ++timers_;
    at(command.at, [this] {
      --timers_;
      manager_step(Tick{});
      agent_step(Tick{});
    });
  }
  void perform(const Decision& command) { HEDDLE_CHECK(!command.why.empty()); }
  void perform(const LoadMeasured& command) { HEDDLE_CHECK(command.load.peak >= 0); }

  // ---- Commands of the agent ----

  void perform(const SpawnWorker& command) {
    HEDDLE_CHECK(!running_.contains(command.device));
    WorkerOptions worker{.device = command.device,
                         .epoch = command.epoch,
                         .pages = std::ssize(command.pages),
                         .step = {.budget = 2ms, .max_batch_tokens = 16, .min_prefill_tokens = 4},
                         .prefix_cache = options_.prefix_cache,
                         .queue = options_.queue,
                         .fixed_parts = options_.fixed_parts,
                         .graph_pages = options_.graph_pages,
                         .report_interval = 2ms};
    const WorkerSurroundings surroundings{
        .arena = arena_,
        .rng = rng_,
        .open_failures = open_failures_,
        .stuck_graphs = options_.stuck_graphs,
        .now = [this] { return now_; },
        .at = [this](Instant when, std::function<void()> what) { at(when, std::move(what)); },
        .report = [this](const ModelledWorker& from,
                         const WorkerReport& report) { receive(from, report); }};
    auto life = std::make_shared<ModelledWorker>(worker, command.pages, surroundings);
    lives.push_back(life);
    running_[command.device] = life;
    links_[command.device] = {now_, now_};
    at(now_ + between(1ms, 5ms), [this, life] {
      if (life->alive()) {
        agent_step(WorkerConnected{.device = life->device(), .epoch = life->epoch()});
      }
    });
  }
  void perform(const KillWorker& command) {
    HEDDLE_CHECK(command.reason.code == Code::kUnavailable);  // Modelled workers keep the rules.
    ++companions_;  // Another worker of its group is dead.
    kill(command.device);
  }
  /// Every member has its shard, and nothing else.
  void perform(const ConnectGroup& command) {
    for (const GroupMember& member : command.members) {
      const auto found = running_.find(member.device);
      if (found != running_.end()) {  // Else it was killed, which the agent has not heard yet.
        HEDDLE_CHECK(found->second->epoch() == member.epoch);
        HEDDLE_CHECK(found->second->open_models() == std::vector<ModelId>{member.model});
      }
    }
    const GroupMember& leader = command.members.front();
    connected_.insert({leader.device, leader.epoch, leader.model});
  }
  void perform(const SendWorker& command) { send(command.device, command.epoch, command.message); }
  void perform(const StartRead& command) {
    HEDDLE_CHECK(!reading_);
    ++reads_;
    reading_ = command;
    read_stops_ = false;
    read_some(0);
  }
  void read_some(std::size_t done) {
    at(now_ + between(100us, 1500us), [this, done] {
      const StartRead& read = *reading_;
      const bool fails = failed_reads_ < options_.read_failures && done == 1;
      if (fails || read_stops_) {
        failed_reads_ += fails ? 1 : 0;
        const ModelId model = read.model;
        reading_.reset();
        agent_step(ReadEnded{
            .model = model,
            .error = Error{fails ? Code::kUnavailable : Code::kCancelled, "the disk says no"}});
        return;
      }
      arena_[read.pages[done].value()] = Content{.model = read.model, .index = done};
      if (done + 1 < read.pages.size()) {
        agent_step(ReadProgress{.model = read.model, .bytes = (done + 1) * kPageBytes});
        read_some(done + 1);
        return;
      }
      const ModelId model = read.model;
      reading_.reset();
      agent_step(ReadEnded{.model = model});
    });
  }
  void perform(const CancelRead& command) {
    HEDDLE_CHECK(reading_ && reading_->model == command.model);
    read_stops_ = true;
  }
  void perform(const TellManager& command) { manager_step(command.event); }
  // There are no engines here that anybody could lend pages to.
  void perform(const GrantLoan& /*command*/) { HEDDLE_CHECK(false); }
  void perform(const RefuseLoan& /*command*/) { HEDDLE_CHECK(false); }
  void perform(const EndLoan& /*command*/) { HEDDLE_CHECK(false); }
  void perform(const BackPages& /*command*/) { HEDDLE_CHECK(false); }

  WorldOptions options_;
  Rng rng_;
  Instant now_{};
  std::size_t timers_ = 0;  ///< Of what is on the agenda.
  std::multimap<Instant, std::function<void()>> agenda_{};
  std::uint64_t happenings_ = 0;
  std::deque<std::variant<ManagerEvent, AgentEvent>> pending_{};

  ManagerCore manager_{};
  AgentCore agent_;
  std::vector<Content> arena_{};
  std::map<ModelId, AgentModel> agent_models_{};
  std::map<ModelId, ManagerModel> manager_models_{};
  std::map<ModelId, ManagerModel> shards_{};                          ///< Rank 1, by rank 0.
  std::set<std::tuple<DeviceId, WorkerEpoch, ModelId>> connected_{};  ///< By leader.
  std::uint64_t companions_ = 0;
  std::uint64_t models_made_ = 0;
  std::uint64_t requests_made_ = 0;
  std::uint64_t tickets_made_ = 0;
  std::uint64_t loads_ = 0;
  std::uint64_t reads_ = 0;
  std::map<RequestId, Record> records_{};
  std::map<RequestId, std::pair<DeviceId, WorkerEpoch>> dispatched_{};
  std::set<RequestId> held_{};
  std::set<TicketId> tickets_asked_{};
  std::set<TicketId> tickets_answered_{};
  std::map<DeviceId, std::shared_ptr<ModelledWorker>> running_{};
  std::map<DeviceId, Link> links_{};
  std::optional<StartRead> reading_{};
  bool read_stops_ = false;
  int failed_reads_ = 0;
  int open_failures_ = options_.open_failures;
};

}  // namespace heddle::core::test
