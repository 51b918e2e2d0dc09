#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "core/test_kv.h"
#include "core/worker_core.h"

namespace heddle::core::test {

using namespace std::chrono_literals;

inline constexpr std::uint64_t kPageBytes = 4096;

/// What a page of the arena holds: part of an image, or KV of one life of one worker.
struct Content {
  ModelId model{};
  std::size_t index = 0;
  SequenceId sequence{};
  WorkerEpoch epoch{};
  friend bool operator==(const Content&, const Content&) = default;
};

/// The one right answer at each place, so that every token can be checked.
inline TokenId token_at(const std::vector<TokenId>& prompt,
                        std::uint32_t choice,
                        std::int64_t position) {
  return static_cast<TokenId>(prompt.size() * 1000 + choice * 500) + static_cast<TokenId>(position);
}

class ModelledWorker;

struct WorkerSurroundings {
  std::vector<Content>& arena;
  Rng& rng;
  int& open_failures;  ///< OpenModel commands that still fail.
  bool stuck_graphs;   ///< Now and then the pages of CUDA graphs cannot be had again.
  std::function<Instant()> now;
  std::function<void(Instant, std::function<void()>)> at;
  std::function<void(const ModelledWorker&, const WorkerReport&)> report;
};

/// A worker process around the real WorkerCore: a page pool with page numbers, an engine whose KV
/// really takes pages and whose steps check that weights and KV are what was written, a mapper.
class ModelledWorker : public std::enable_shared_from_this<ModelledWorker> {
 public:
  ModelledWorker(const WorkerOptions& options,
                 const std::vector<PageId>& pages,
                 WorkerSurroundings around)
      : options_(options),
        core_(options),
        around_(std::move(around)),
        free_(pages.begin(), pages.end()) {}

  [[nodiscard]] DeviceId device() const { return options_.device; }
  [[nodiscard]] WorkerEpoch epoch() const { return options_.epoch; }
  [[nodiscard]] const WorkerOptions& options() const { return options_; }
  [[nodiscard]] bool alive() const { return alive_; }
  void die() { alive_ = false; }
  /// That have pages here, and are not on their way out.
  [[nodiscard]] std::vector<ModelId> open_models() const {
    std::vector<ModelId> open;
    for (const auto& [id, model] : models_) {
      if (!model.closing) {
        open.push_back(id);
      }
    }
    return open;
  }

  void receive(const WorkerMessage& message) {
    if (!alive_) {
      return;
    }
    // What the thread of the link does past the engine thread, which may be waiting in a step.
    if (const auto* progress = std::get_if<ImageProgress>(&message)) {
      const auto found = models_.find(progress->model);
      if (found != models_.end()) {
        found->second.source_ready = std::max(found->second.source_ready, progress->bytes);
        if (found->second.open.source == ImageSource::kGiven) {
          found->second.ready = std::max(found->second.ready, progress->bytes);
        }
        copy_some(progress->model);
      }
    }
    const auto* evict = std::get_if<EvictModel>(&message);
    if (evict != nullptr && evict->mode == EvictMode::kNow && models_.contains(evict->model)) {
      models_.at(evict->model).abandoned = true;
    }
    hear(message);
    finish_waiting_step();
  }

  struct Heard {
    Instant at{};
    WorkerEvent event{};
  };
  std::vector<Heard> heard;
  std::vector<WorkerCommand> wanted;
  std::int64_t prefix_tokens = 0;  ///< That were found in the cache.

 private:
  struct Model {
    OpenModel open{};
    std::vector<PageId> window{};
    std::uint64_t ready = 0;         ///< As the engine was told.
    std::uint64_t source_ready = 0;  ///< Of an image to copy.
    std::uint64_t copied = 0;
    bool opened = false;
    bool closing = false;
    bool to_pool = false;
    bool abandoned = false;
    bool copying = false;
  };
  struct Running {
    ModelId model{};
    std::vector<TokenId> prompt{};
    std::uint32_t choice = 0;
    std::int64_t generated = 0;
    std::int64_t max_tokens = 0;
    std::string salt{};
    std::vector<TokenId> tokens{};  ///< Prompt, and what was generated.
    std::int64_t computed = 0;
    std::vector<ModelledKv::BlockId> blocks{};
    bool compiling = false;  ///< Its grammar is.

    /// What the first n of its blocks hold when the first `end` tokens are computed: the last's.
    [[nodiscard]] ModelledKv::Content content(std::int64_t n, std::int64_t end) const {
      const std::int64_t size = std::min(n * ModelledKv::kBlockTokens, end);
      return {.model = model, .salt = salt, .tokens = {tokens.begin(), tokens.begin() + size}};
    }
  };

  void hear(const WorkerEvent& event) {
    inbox_.push_back(event);
    work();
  }

  void work() {
    while (alive_ && !stepping_) {
      const bool idle = inbox_.empty();
      if (idle && idle_said_) {
        return;
      }
      WorkerEvent event = EngineIdle{};
      if (!idle) {
        event = std::move(inbox_.front());
        inbox_.pop_front();
      }
      idle_said_ = idle;
      tell(event);
    }
  }

  void tell(const WorkerEvent& event) {
    if (const auto* closed = std::get_if<ModelClosed>(&event)) {
      close(closed->model);  // The pool is this thread's, so not before the core hears of it.
    } else if (const auto* ready = std::get_if<SequenceReady>(&event)) {
      set_ready(ready->sequence);
    }
    std::vector<WorkerCommand> commands;
    heard.push_back({around_.now(), event});
    core_.step(around_.now(), event, commands);
    core_.check_invariants();
    for (const WorkerCommand& command : commands) {
      wanted.push_back(command);
      std::visit([this](const auto& concrete) { perform(concrete); }, command);
    }
    if (std::exchange(kv_changed_, false)) {
      answers_.emplace_back(count_kv());
    }
    for (const WorkerEvent& answer : std::exchange(answers_, {})) {
      tell(answer);
    }
    // The ledger never counts a page as free that the pool does not have.
    HEDDLE_CHECK(core_.report().usage.free <= std::ssize(free_));
  }

  Duration some(Duration least, Duration most) {
    return least + Duration{static_cast<Duration::rep>(
                       around_.rng.below(static_cast<std::uint64_t>((most - least).count()) + 1))};
  }

  PageId take() {
    HEDDLE_CHECK(!free_.empty());
    return free_.extract(free_.begin()).value();
  }
  void put(PageId page) { HEDDLE_CHECK(free_.insert(page).second); }

  /// Work of the mapper: in order, one after the other.
  void map_later(std::function<void()> what) {
    mapper_free_at_ = std::max(mapper_free_at_, around_.now()) + some(20us, 300us);
    around_.at(mapper_free_at_, [self = shared_from_this(), what = std::move(what)] {
      if (self->alive_) {
        what();
      }
    });
  }

  void perform(const AdoptPages& command) {
    for (const PageId page : command.pages) {
      put(page);
    }
  }
  void perform(const SurrenderPages& command) {
    PagesReturned returned{.model = command.model};
    for (std::int64_t i = 0; i < command.count; ++i) {
      returned.pages.push_back(take());
    }
    around_.report(*this, returned);
  }
  void resize(std::vector<PageId>& pages, std::int64_t count) {
    for (; std::ssize(pages) < count; pages.push_back(take())) {
    }
    for (; std::ssize(pages) > count; pages.pop_back()) {
      put(pages.back());
    }
  }
  void perform(const FitWorkspace& command) {
    HEDDLE_CHECK(command.pages != std::ssize(workspace_));
    resize(workspace_, command.pages);
  }
  void perform(const KeepGraphs& command) {
    HEDDLE_CHECK(command.pages <= options_.graph_pages);
    const bool stuck =
        around_.stuck_graphs && command.pages < std::ssize(graphs_) && around_.rng.below(8) == 0;
    if (!stuck) {
      resize(graphs_, command.pages);
    }
    answers_.emplace_back(GraphsKept{.pages = std::ssize(graphs_)});
  }
  void perform(const OpenModel& command) {
    HEDDLE_CHECK(!models_.contains(command.model));
    Model& model = models_[command.model];
    model.open = command;
    model.source_ready = command.ready_bytes;
    model.window = command.pages;
    if (command.source == ImageSource::kShared) {
      for (PageId& page : model.window) {
        page = take();
      }
    }
    const bool fails = around_.open_failures > 0 && around_.rng.below(3) == 0;
    around_.open_failures -= fails ? 1 : 0;
    map_later([this, id = command.model, fails] {
      if (fails) {
        hear(OpenFailed{.model = id, .error = {Code::kUnavailable, "the mapper says no"}});
        return;
      }
      if (models_.at(id).closing) {
        return;
      }
      models_.at(id).opened = true;
      hear(ModelOpened{.model = id});
      copy_some(id);
    });
  }
  void copy_some(ModelId id) {
    const auto found = models_.find(id);
    if (found == models_.end() || found->second.open.source != ImageSource::kShared ||
        !found->second.opened || found->second.closing || found->second.copying ||
        found->second.copied >= found->second.source_ready) {
      return;
    }
    found->second.copying = true;
    around_.at(around_.now() + some(50us, 500us), [self = shared_from_this(), id] {
      const auto model = self->models_.find(id);
      if (!self->alive_ || model == self->models_.end() || model->second.closing) {
        return;
      }
      self->copy_ready_pages(id, model->second);
    });
  }
  void copy_ready_pages(ModelId id, Model& model) {
    model.copying = false;
    for (std::size_t i = 0; i < model.window.size(); ++i) {
      const std::uint64_t end = std::min((i + 1) * kPageBytes, model.open.image_bytes);
      if (end > model.copied && end <= model.source_ready) {
        around_.arena[model.window[i].value()] = around_.arena[model.open.pages[i].value()];
        model.copied = end;
      }
    }
    model.ready = std::max(model.ready, model.copied);
    hear(CopyProgress{.model = id, .bytes = model.copied});
    finish_waiting_step();
    copy_some(id);
  }
  void perform(const LetGoWindow& /*command*/) {}
  void perform(const CloseModel& command) {
    Model& model = models_.at(command.model);
    HEDDLE_CHECK(!model.closing && kv_.pages_used(command.model) == 0);
    kv_.drop_model(command.model);
    kv_changed_ = true;
    model.closing = true;
    model.to_pool = command.image == ImagePages::kToPool;
    map_later([this, command] { hear(ModelClosed{.model = command.model}); });
  }
  void close(ModelId id) {
    const Model closed = models_.extract(id).mapped();
    for (const PageId page : closed.to_pool ? closed.window : std::vector<PageId>{}) {
      put(page);
    }
  }
  void perform(const SetImageReady& command) {
    Model& model = models_.at(command.model);
    HEDDLE_CHECK(model.opened);
    model.ready = std::max(model.ready, command.bytes);
  }
  void perform(const PrioritiseCopy& command) {
    HEDDLE_CHECK(models_.at(command.model).open.source == ImageSource::kShared);
  }
  void perform(const SetSourceReady& command) {
    Model& model = models_.at(command.model);
    model.source_ready = std::max(model.source_ready, command.bytes);
    copy_some(command.model);
  }
  void perform(const AddSequence& command) {
    HEDDLE_CHECK(models_.at(command.model).opened);
    Running& running = running_[command.sequence];
    running = {.model = command.model,
               .prompt = {command.tokens.begin(), command.tokens.begin() + command.prompt_tokens},
               .choice = command.params.choice,
               .generated = std::ssize(command.tokens) - command.prompt_tokens,
               .max_tokens = command.params.max_tokens,
               .salt = command.cache_salt,
               .tokens = command.tokens};
    HEDDLE_CHECK(running.generated < running.max_tokens);
    running.compiling = command.params.grammar.constrains();
    if (running.compiling) {
      around_.at(around_.now() + some(0us, 3ms),
                 [self = shared_from_this(), id = command.sequence] { self->end_compiling(id); });
    }
  }
  void end_compiling(SequenceId id) {
    if (alive_ && running_.contains(id)) {
      hear(SequenceReady{.sequence = id});
    }
  }
  void set_ready(SequenceId id) {
    if (const auto found = running_.find(id); found != running_.end()) {
      found->second.compiling = false;
    }
  }
  void free_blocks(SequenceId id) {
    Running& running = running_.at(id);
    for (; !running.blocks.empty(); running.blocks.pop_back()) {
      kv_.free(running.blocks.back());
    }
    running.computed = 0;
    kv_changed_ = true;
  }
  void perform(const TakePrefixes& command) {
    HEDDLE_CHECK(options_.prefix_cache > 0);
    PrefixesTaken taken;
    for (const SequenceId id : command.sequences) {
      Running& running = running_.at(id);
      HEDDLE_CHECK(running.computed == 0 && running.blocks.empty() && !running.compiling);
      const auto most = (std::ssize(running.tokens) - 1) / ModelledKv::kBlockTokens;
      while (std::ssize(running.blocks) < most) {
        const auto block =
            kv_.use(running.content(std::ssize(running.blocks) + 1, std::ssize(running.tokens)));
        if (!block) {
          break;
        }
        running.blocks.push_back(*block);
      }
      running.computed = std::ssize(running.blocks) * ModelledKv::kBlockTokens;
      prefix_tokens += running.computed;
      taken.sequences.push_back({.sequence = id, .computed = running.computed});
    }
    kv_changed_ = true;
    idle_said_ = false;
    answers_.emplace_back(taken);
  }
  void perform(const TrimCached& command) {
    HEDDLE_CHECK(command.keep >= 0);
    kv_.trim(command.keep);
    kv_changed_ = true;
  }
  void perform(const PreemptSequence& command) { free_blocks(command.sequence); }
  void perform(const RemoveSequence& command) {
    free_blocks(command.sequence);
    running_.erase(command.sequence);
  }
  void perform(const Report& command) { around_.report(*this, command.report); }

  void perform(const RunStep& command) {
    HEDDLE_CHECK(!stepping_ && !command.plan.batches.empty());
    stepping_ = true;
    step_ = command.plan;
    step_waits_ = true;
    finish_waiting_step();
  }

  /// A step begins to count when all its weights are there, or never will be.
  void finish_waiting_step() {
    if (!stepping_ || !step_waits_) {
      return;
    }
    for (const policy::ModelBatch& batch : step_.batches) {
      const Model& model = models_.at(batch.model);
      HEDDLE_CHECK(model.opened && !model.closing);
      if (!model.abandoned && model.ready < model.open.image_bytes) {
        return;
      }
    }
    step_waits_ = false;
    const Duration took = some(100us, 2ms);
    around_.at(around_.now() + took, [self = shared_from_this(), took] {
      if (self->alive_) {
        self->end_step(took);
      }
    });
  }

  void end_step(Duration took) {
    StepDone done{.took = took};
    for (const policy::ModelBatch& batch : step_.batches) {
      const Model& model = models_.at(batch.model);
      const bool ready = model.ready >= model.open.image_bytes;
      for (const policy::StepSlice& slice : batch.slices) {
        if (!ready) {
          done.unready.push_back(slice.sequence);
        } else if (!run_slice(slice, done)) {
          done.starved.push_back(slice.sequence);
        }
      }
      if (ready) {
        check_weights(batch.model);
      }
    }
    done.counted = count_kv();
    stepping_ = false;
    tell(done);
    idle_said_ = false;
    work();
  }

  void check_weights(ModelId id) const {
    const Model& model = models_.at(id);
    for (std::size_t i = 0; i < model.window.size(); ++i) {
      const Content expected{.model = id, .index = i};
      HEDDLE_CHECK(around_.arena[model.window[i].value()] == expected);
    }
  }

  bool run_slice(const policy::StepSlice& slice, StepDone& done) {
    Running& running = running_.at(slice.sequence);
    const std::int64_t known = std::ssize(running.tokens);
    const std::int64_t end = running.computed + slice.tokens;
    HEDDLE_CHECK(end <= known && !running.compiling);
    if (!grow(running, (end + ModelledKv::kBlockTokens - 1) / ModelledKv::kBlockTokens)) {
      return false;
    }
    compute(running, end);
    SliceDone result{.sequence = slice.sequence, .computed = end};
    if (end == known) {
      result.position = running.generated;
      result.token = token_at(running.prompt, running.choice, running.generated);
      running.tokens.push_back(*result.token);
      ++running.generated;
      if (running.generated == running.max_tokens) {
        result.finish = spec::FinishReason::kLength;
      }
    }
    done.slices.push_back(result);
    return true;
  }

  /// Reads the KV of the tokens before, which must be what was written, and writes that of the
  /// tokens up to `end`.
  void compute(Running& running, std::int64_t end) {
    const Content kv{.sequence = SequenceId(1), .epoch = epoch()};
    for (std::int64_t i = 0; i < std::ssize(running.blocks); ++i) {
      const auto block = running.blocks[static_cast<std::size_t>(i)];
      HEDDLE_CHECK(around_.arena[kv_.page_of(block).value()] == kv);
      if (i * ModelledKv::kBlockTokens < running.computed) {
        HEDDLE_CHECK(kv_.read(block) == running.content(i + 1, running.computed));
      }
      if ((i + 1) * ModelledKv::kBlockTokens <= running.computed) {
        continue;
      }
      kv_.write(block, running.content(i + 1, end));
      if ((i + 1) * ModelledKv::kBlockTokens <= end && options_.prefix_cache > 0) {
        kv_.keep(block);
      }
    }
    running.computed = end;
  }

  /// All the blocks, or none of them.
  bool grow(Running& running, std::int64_t blocks) {
    const std::size_t before = running.blocks.size();
    bool grown = true;
    while (grown && std::ssize(running.blocks) < blocks) {
      const auto block = kv_.allocate(running.model);
      grown = block.has_value();
      if (grown) {
        running.blocks.push_back(*block);
      }
    }
    for (const PageId page : kv_.taken()) {
      around_.arena[page.value()] = {.sequence = SequenceId(1), .epoch = epoch()};
    }
    for (; !grown && running.blocks.size() > before; running.blocks.pop_back()) {
      kv_.free(running.blocks.back());
    }
    return grown;
  }

  [[nodiscard]] KvCounted count_kv() const {
    KvCounted counted{.cached_pages = kv_.pages_cached()};
    for (const auto& [id, model] : models_) {
      if (!model.closing) {
        counted.kv.push_back({.model = id, .pages = kv_.pages_used(id)});
      }
    }
    return counted;
  }

  WorkerOptions options_;
  WorkerCore core_;
  WorkerSurroundings around_;
  bool alive_ = true;
  std::set<PageId> free_{};
  std::vector<PageId> workspace_{};
  std::vector<PageId> graphs_{};
  ModelledKv kv_{free_};
  bool kv_changed_ = false;
  std::map<ModelId, Model> models_{};
  std::map<SequenceId, Running> running_{};
  std::deque<WorkerEvent> inbox_{};
  std::vector<WorkerEvent> answers_{};  ///< To what is carried out now.
  bool idle_said_ = true;
  bool stepping_ = false;
  bool step_waits_ = false;
  policy::StepPlan step_{};
  Instant mapper_free_at_{};
};

}  // namespace heddle::core::test
