#include "sim/planes/live_device.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// Of reports that tell of counts alone, as core::WorkerOptions has it.
constexpr Duration kReports = 100ms;
/// A worker looks before each of its steps. Here that is when a prompt was read or a request has
/// ended, of which the world tells, and else after so long.
constexpr Duration kLook = 100ms;
/// What a layer waits for the attention of its guests, at a guess.
constexpr Duration kGuestWait = 20us;
/// Over so long it is measured how much is read, of which the newest weighs so much.
constexpr Duration kReadingSeen = 1s;
constexpr double kNewestReading = 0.2;

/// The step of an engine that reads `tokens` of a prompt and nothing else.
std::int64_t reading_ps(const StepModel& step, std::int64_t tokens) {
  return step.base_ps(tokens, 1) + step.fixed_ps() + step.chunk_ps({.tokens = tokens});
}

policy::AdmissionView view_of(const Sequence& sequence, ModelId model) {
  return {.id = policy::SequenceId(sequence.id.value()),
          .model = model,
          .arrived = sequence.arrived,
          .admitted = true,
          .tokens = sequence.prompt + sequence.generated,
          .cached = sequence.computed,
          .remaining = sequence.remaining()};
}

}  // namespace

std::int64_t lent_and_empty(const World& world, GpuId host) {
  std::int64_t pages = 0;
  for (const ReplicaId id : world.gpu(host).hosts) {
    const Replica& hot = *world.replica(id);
    pages += std::max<std::int64_t>(
        0, hot.lent_pages - world.memory().reserved(hot.guest_kv, ledger::device_pool(host)));
  }
  return pages;
}

/// What admission knows of the device.
struct LiveDevice::Views {
  std::vector<policy::AdmissionView> sequences{};  ///< Admitted ones first; then those that wait.
  std::vector<policy::AdmissionModel> models{};
  std::size_t admitted = 0;
};

// ---- The life of its worker ----

void LiveDevice::come_up() {
  up_ = true;
  epoch_ = WorkerEpoch(epoch_.value() + 1);
  version_ = 0;
}

void LiveDevice::go_down() {
  up_ = false;
  residents_.clear();
  stalled_.reset();
  residency_changed_ = counts_changed_ = false;
}

LiveDevice::Resident* LiveDevice::resident(ModelId model) {
  const auto found = residents_.find(model);
  return found == residents_.end() ? nullptr : &found->second;
}

// ---- Requests ----

std::vector<LiveDevice::Waiting> LiveDevice::take(const World& world,
                                                  std::optional<ModelId> as,
                                                  std::int64_t most) {
  std::vector<std::pair<Instant, policy::SequenceId>> order;
  for (const auto& [id, waiting] : waiting_) {
    if (!as || waiting.as == *as) {
      order.emplace_back(world.request(waiting.live).arrival, id);
    }
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, most))));
  std::vector<Waiting> taken;
  for (const auto& [arrived, id] : order) {
    taken.push_back(waiting_.extract(id).mapped());
  }
  return taken;
}

/// Its replica, if that takes requests.
const Replica* LiveDevice::serving(const World& world, ModelId model) const {
  const auto found = residents_.find(model);
  if (found == residents_.end() || found->second.going || !found->second.replica) {
    return nullptr;
  }
  const Replica* replica = world.replica(*found->second.replica);
  return replica != nullptr && replica->serves() ? replica : nullptr;
}

/// Models whose weights are still to come have no part in it: nothing of theirs could run.
LiveDevice::Views LiveDevice::views(const World& world) const {
  Views all;
  for (const auto& [model, resident] : residents_) {
    const Replica* replica = serving(world, model);
    if (replica == nullptr || map_->part(model).at > 0) {
      continue;
    }
    const std::int64_t used = world.memory().reserved(replica->kv, ledger::device_pool(gpu_));
    all.models.push_back({.model = model, .kv = map_->footprint(model).kv, .pages_used = used});
    if (in_ranks(model)) {
      all.models.back().most_pages = used + share_growth(world, *replica);
      all.models.back().apart = true;
    }
    for (const auto* sequences :
         {&replica->engine->running_sequences(), &replica->engine->waiting_sequences()}) {
      for (const Sequence& sequence : *sequences) {
        all.sequences.push_back(view_of(sequence, model));
        // Requests have the manager's numbers here.
        all.sequences.back().id =
            sequence_of(RequestId(world.request(LiveId(sequence.id.value())).number.value() + 1));
      }
    }
  }
  all.admitted = all.sequences.size();
  for (const auto& [id, waiting] : waiting_) {
    if (serving(world, waiting.as) == nullptr) {
      continue;
    }
    const LiveRequest& request = world.request(waiting.live);
    all.sequences.push_back({.id = id,
                             .model = waiting.as,
                             .arrived = request.arrival,
                             .tokens = request.prompt + request.generated,
                             .remaining = request.generate - request.generated});
  }
  return all;
}

/// It is sharded: its KV is apart from that of the device's other models.
bool LiveDevice::in_ranks(ModelId model) const {
  return map_->part(model).of > 1 && !map_->part(model).stage;
}

/// What the share of a group may grow by: what is free on the device that has least.
std::int64_t LiveDevice::share_growth(const World& world, const Replica& replica) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const GpuId gpu : replica.gpus) {
    least = std::min(least, world.free_pages(gpu) - lent_and_empty(world, gpu));
  }
  return std::max<std::int64_t>(0, least);
}

/// What the models of the device leave to KV; pages that a load waits for are promised to it.
std::int64_t LiveDevice::kv_pages_total(const World& world) const {
  const PoolId pool = ledger::device_pool(gpu_);
  std::int64_t pages = world.free_pages(gpu_) - lent_and_empty(world, gpu_);
  for (const ReplicaId id : world.gpu(gpu_).replicas) {
    const Replica& replica = *world.replica(id);
    const bool in_ranks = replica.gpus.size() > 1 && replica.stages.size() == 1;
    const bool apart = in_ranks || replica.spec.kv_kept;
    pages += replica.kv == LeaseId(0) || apart ? 0 : world.memory().reserved(replica.kv, pool);
    if (replica.state == ReplicaPhase::kWaiting) {
      pages -= start_pages(world, replica);
    }
  }
  return std::max<std::int64_t>(0, pages);
}

/// How much longer a step of one model takes for the other engines on the device.
double LiveDevice::slowdown(const World& world, ModelId model) const {
  const ModelSpec& spec = world.model(map_->part(model).model);
  const StepModel& step = world.step_model(map_->part(model).model, world.gpu(gpu_).host);
  std::int64_t others = 0;
  for (const ReplicaId id : world.gpu(gpu_).active) {
    const Replica& replica = *world.replica(id);
    if (replica.model != map_->part(model).model && !replica.engine->prefilling()) {
      others += replica.published_ps;
    }
  }
  return 1 +
         static_cast<double>(others) / static_cast<double>(reading_ps(step, spec.max_batch_tokens));
}

/// What reading so many tokens takes, in full steps, with the decodes that run beside it; > 0.
Duration LiveDevice::prefill(const World& world, ModelId model, std::int64_t tokens) const {
  const ModelId id = map_->part(model).model;
  const ModelSpec& spec = world.model(id);
  if (spec.prompts_elsewhere) {
    return Duration(1);
  }
  const StepModel& step = world.step_model(id, world.gpu(gpu_).host);
  const double per_token = static_cast<double>(reading_ps(step, spec.max_batch_tokens)) /
                           static_cast<double>(spec.max_batch_tokens);
  return Duration(1 + static_cast<std::int64_t>(per_token * slowdown(world, model) *
                                                static_cast<double>(tokens) / 1000));
}

/// As much is kept with the engines as the next step of one of them would read.
core::PrefillState LiveDevice::prefill_state(const World& world) const {
  core::PrefillState state{.now = world.now()};
  for (const auto& [model, resident] : residents_) {
    const Replica* replica = serving(world, model);
    if (replica != nullptr && map_->part(model).at == 0) {
      const std::int64_t backlog = replica->engine->prefill_backlog();
      state.dispatched += backlog > 0 ? prefill(world, model, backlog) : Duration{};
    }
  }
  for (const auto& [id, waiting] : waiting_) {
    if (serving(world, waiting.as) != nullptr) {
      const std::int64_t chunk = world.model(map_->part(waiting.as).model).max_batch_tokens;
      state.ahead = std::max(state.ahead, prefill(world, waiting.as, chunk));
    }
  }
  return state;
}

/// WorkerCore's admission by deadline. Who has begun is with its engine, which the world lets in.
std::vector<LiveDevice::Waiting> LiveDevice::admit(const World& world) {
  if (waiting_.empty()) {
    return {};
  }
  core::PrefillState state = prefill_state(world);
  if (state.dispatched >= state.ahead) {
    return {};  // The engines have enough, or nobody's model serves yet.
  }
  const Views all = views(world);
  const std::int64_t total = kv_pages_total(world);
  policy::AdmissionRoom room(all.sequences, all.models, total);
  state.free_pages = room.left() * policy::kPageParts;
  std::vector<core::QueuedPrefill> queued;
  std::map<policy::SequenceId, const policy::AdmissionView*> by_id;
  for (std::size_t i = all.admitted; i < all.sequences.size(); ++i) {
    const policy::AdmissionView& view = all.sequences[i];
    by_id[view.id] = &view;
    queued.push_back(
        {.id = view.id,
         .model = view.model,
         .arrived = view.arrived,
         .due = waiting_.at(view.id).due,
         .prefill = prefill(world, view.model, view.tokens),
         .kv_pages = in_ranks(view.model)
                         ? 0
                         : std::min(policy::kv_parts(map_->footprint(view.model).kv, view),
                                    total * policy::kPageParts)});
  }
  std::vector<Waiting> admitted;
  std::set<ModelId> full;
  std::map<ModelId, std::int64_t> slots;  // Of engines, which hold no more at once.
  for (const auto& [model, resident] : residents_) {
    const Replica* replica = serving(world, model);
    if (replica != nullptr) {
      slots[model] = world.model(map_->part(model).model).max_sequences -
                     static_cast<std::int64_t>(replica->load());
    }
  }
  for (const policy::SequenceId id : queue_.pass(state, queued)) {
    const policy::AdmissionView& view = *by_id.at(id);
    if (slots[view.model]-- > 0 && !full.contains(view.model) &&
        room.admit(view) == policy::AdmissionRoom::Answer::kFits) {
      admitted.push_back(waiting_.extract(id).mapped());
    } else {
      full.insert(view.model);
    }
  }
  if (all.admitted == 0 && admitted.empty() && !queued.empty()) {
    // Where nobody is admitted, who is first, whatever it needs: alone it may run.
    const auto first = std::ranges::min_element(
        queued, {}, [](const core::QueuedPrefill& each) { return std::pair(each.due, each.id); });
    admitted.push_back(waiting_.extract(first->id).mapped());
  }
  for (const Waiting& each : admitted) {
    const LiveRequest& request = world.request(each.live);
    reading_[each.as].sum += prefill(world, each.as, request.prompt + request.generated);
  }
  return admitted;
}

std::optional<Instant> LiveDevice::next_look(const World& world) const {
  const bool any = std::ranges::any_of(
      waiting_, [&](const auto& entry) { return serving(world, entry.second.as) != nullptr; });
  return any ? std::optional(world.now() + kLook) : std::nullopt;
}

// ---- Reports ----

void LiveDevice::change(bool of_residency) {
  residency_changed_ = residency_changed_ || of_residency;
  counts_changed_ = true;
}

std::optional<Instant> LiveDevice::report_due() const {
  return up_ && counts_changed_ ? std::optional(reported_at_ + kReports) : std::nullopt;
}

std::optional<core::DeviceReport> LiveDevice::report_changes(const World& world) {
  if (!up_ || !(residency_changed_ || counts_changed_)) {
    return std::nullopt;
  }
  const bool runs = !waiting_.empty() || std::ranges::any_of(residents_, [&](const auto& entry) {
    const Replica* replica = serving(world, entry.first);
    return replica != nullptr && replica->load() > 0;
  });
  if (!residency_changed_ && runs && world.now() < reported_at_ + kReports) {
    return std::nullopt;
  }
  note_reading(world);
  core::DeviceReport said = report(world);
  told_short_ = said.short_model;
  reported_at_ = world.now();
  residency_changed_ = counts_changed_ = false;
  return said;
}

core::DeviceReport LiveDevice::report(const World& world) const {
  const PoolId pool = ledger::device_pool(gpu_);
  core::DeviceReport report{.version = version_, .usage = usage(world)};
  for (const auto& [model, resident] : residents_) {
    const Replica* replica = resident.replica ? world.replica(*resident.replica) : nullptr;
    if (replica == nullptr || replica->state == ReplicaPhase::kWaiting) {
      continue;  // The order waits for pages: the worker has not begun it.
    }
    const auto queued = std::ranges::count_if(
        waiting_, [id = model](const auto& entry) { return entry.second.as == id; });
    const std::int64_t admitted =
        map_->part(model).at == 0 ? static_cast<std::int64_t>(replica->load()) : 0;
    const auto late = std::ranges::count_if(waiting_, [&, id = model](const auto& entry) {
      return entry.second.as == id && queue_.late(entry.first);
    });
    report.models.push_back(
        {.model = model,
         .residency = resident.going          ? core::Residency::kDraining
                      : queued + admitted > 0 ? core::Residency::kServing
                                              : core::Residency::kWarm,
         .kv_pages = replica->kv == LeaseId(0) ? 0 : world.memory().reserved(replica->kv, pool),
         .sequences = queued + admitted,
         .sequences_admitted = admitted,
         .complete = replica->serves(),
         .late = replica->serves() ? late : 0});
    tell_guests(world, *replica, report.models.back());
    if (replica->engine) {  // Models take turns, so that each one's step is the device's.
      report.step = std::max(report.step, replica->engine->step());
    }
  }
  tell_stall(world, report);
  tell_shortage(world, report);
  return report;
}

/// The worker's ledger: what is lent is none of it.
ledger::PoolUsage LiveDevice::usage(const World& world) const {
  const PoolId pool = ledger::device_pool(gpu_);
  ledger::PoolUsage usage = world.memory().ledger().usage(pool);
  for (ledger::Share& share : usage.by_kind) {
    share.held = share.reserved;  // The world tells these apart nowhere.
  }
  for (const ReplicaId id : world.gpu(gpu_).hosts) {
    usage.total -= world.replica(id)->lent_pages;
  }
  usage.free -= lent_and_empty(world, gpu_);
  return usage;
}

/// What a worker measures of guests once it has some.
void LiveDevice::tell_guests(const World& world,
                             const Replica& replica,
                             core::ResidentReport& report) const {
  if (const auto found = reading_.find(report.model); found != reading_.end()) {
    report.reading = found->second.part;
  }
  report.lent_pages = replica.lent_pages;
  if (replica.lent_pages == 0 || !replica.guest_host || !replica.engine) {
    return;
  }
  report.guest_pages =
      world.memory().reserved(replica.guest_kv, ledger::device_pool(*replica.guest_host));
  if (report.guest_pages == 0) {
    return;
  }
  std::int64_t context = 0;
  for (const Sequence& sequence : replica.engine->running_sequences()) {
    context += sequence.computed;
  }
  const StepModel& step = world.step_model(replica.model, world.gpu(gpu_).host);
  report.attention = Duration(context * step.context_ps() / 1000);
  report.guest_loss = world.model(replica.model).shape.layers * kGuestWait;
}

/// The part of the last second or more in which models read prompts.
void LiveDevice::note_reading(const World& world) {
  for (auto& [model, reading] : reading_) {
    const Duration passed = world.now() - reading.since;
    if (passed < kReadingSeen) {
      continue;
    }
    const double part = std::min(1.0, to_seconds(reading.sum) / to_seconds(passed));
    reading.part += (reading.since == Instant{} ? 1 : kNewestReading) * (part - reading.part);
    reading.since = world.now();
    reading.sum = {};
  }
}

void LiveDevice::tell_stall(const World& world, core::DeviceReport& report) const {
  const Replica* replica = stalled_ ? world.replica(*stalled_) : nullptr;
  if (replica == nullptr || !replica->engine || !replica->engine->starved()) {
    return;
  }
  for (const auto& [model, resident] : residents_) {
    if (resident.replica == stalled_ && !resident.going) {
      const std::vector<Sequence>& running = replica->engine->running_sequences();
      const std::vector<Sequence>& all =
          running.empty() ? replica->engine->waiting_sequences() : running;
      std::int64_t length = policy::kExpectedTokens;
      if (!all.empty()) {
        length = all.front().prompt + all.front().generated +
                 std::min(policy::kExpectedTokens, all.front().remaining());
      }
      report.pages_wanted = std::max<std::int64_t>(
          1, policy::kv_pages(map_->footprint(model).kv, {&length, 1}) - kv_pages_total(world));
      report.wanted_by = model;
    }
  }
}

/// Who waits for pages and nothing else. Models are told of in turn.
void LiveDevice::tell_shortage(const World& world, core::DeviceReport& report) const {
  if (waiting_.empty()) {
    return;
  }
  const core::PrefillState state = prefill_state(world);
  if (state.dispatched >= state.ahead) {
    return;  // Nobody waits, or only for the prompts of others to be read.
  }
  const Views all = views(world);
  std::set<ModelId> waiting;
  std::int64_t parts = 0;
  std::map<ModelId, std::int64_t> of_groups;  // Parts of pages that those who wait need.
  for (std::size_t i = all.admitted; i < all.sequences.size(); ++i) {
    const policy::AdmissionView& view = all.sequences[i];
    if (in_ranks(view.model)) {
      of_groups[view.model] += policy::kv_parts(map_->footprint(view.model).kv, view);
      continue;
    }
    ++report.short_sequences;
    parts += policy::kv_parts(map_->footprint(view.model).kv, view);
    waiting.insert(view.model);
  }
  const policy::AdmissionRoom room(all.sequences, all.models, kv_pages_total(world));
  report.short_pages = std::max<std::int64_t>(
      0, (parts + policy::kPageParts - 1) / policy::kPageParts - room.left());
  if (waiting.empty() || report.short_pages == 0) {
    report.short_sequences = report.short_pages = 0;
    tell_group_shortage(world, of_groups, report);
    return;
  }
  const auto next = waiting.upper_bound(told_short_);
  report.short_model = next == waiting.end() ? *waiting.begin() : *next;
}

/// Of a group whose share cannot grow by as much as those need who wait.
void LiveDevice::tell_group_shortage(const World& world,
                                     const std::map<ModelId, std::int64_t>& parts,
                                     core::DeviceReport& report) const {
  for (const auto& [model, need] : parts) {
    const std::int64_t pages = (need + policy::kPageParts - 1) / policy::kPageParts;
    if (pages > share_growth(world, *serving(world, model))) {
      report.short_sequences = std::ranges::count_if(
          waiting_, [id = model](const auto& entry) { return entry.second.as == id; });
      report.short_pages = pages;
      report.short_model = model;
      return;
    }
  }
}

}  // namespace heddle::sim
