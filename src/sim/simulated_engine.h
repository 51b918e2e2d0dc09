#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "policy/batching.h"
#include "sim/iteration_run.h"
#include "sim/step_model.h"

namespace heddle::sim {

using policy::SequenceId;

/// Where keys and values lie: with the engine, or as guests on another device.
enum class KvPlace : std::uint8_t { kOwn, kGuest };
inline constexpr std::size_t kKvPlaces = 2;

/// A request as an engine sees it.
struct Sequence {
  SequenceId id{};
  Instant arrived{};
  std::int64_t prompt = 0;        ///< Tokens; >= 1.
  std::int64_t generate = 0;      ///< Tokens of the whole answer; 0: the prompt is only read.
  std::int64_t generated = 0;     ///< So far.
  std::int64_t computed = 0;      ///< Tokens whose keys and values are cached.
  KvPlace place = KvPlace::kOwn;  ///< Where new tokens go. kGuest: all of it is there (WEAVER).
  std::int64_t away = 0;   ///< With kOwn: the first tokens, whose KV moved to another device.
  std::int64_t tried = 0;  ///< `computed` when it was last asked to move more of them.

  /// Of its first `tokens`, how many are at `where`.
  [[nodiscard]] std::int64_t tokens_at(KvPlace where, std::int64_t tokens) const {
    const std::int64_t guests = place == KvPlace::kGuest ? tokens : away;
    return where == KvPlace::kGuest ? guests : tokens - guests;
  }
  /// Whether any of its KV is at `where`, or will be.
  [[nodiscard]] bool uses(KvPlace where) const {
    return place == where || (where == KvPlace::kGuest && away > 0);
  }
  /// Its KV is gone, and will be computed again.
  void lose_kv() { computed = away = tried = 0; }
  /// Known tokens not computed yet.
  [[nodiscard]] std::int64_t pending() const { return prompt + generated - computed; }
  [[nodiscard]] std::int64_t remaining() const { return generate - generated; }
};

struct EngineOptions {
  std::int64_t max_sequences = 256;      ///< B: most that run at once.
  std::int64_t max_batch_tokens = 2048;  ///< Most tokens in a step; longer prompts go in chunks.
  Duration step_budget{};                ///< Aim of a step with prefill; 0: no aim.
  std::int64_t tokens_per_block = 16;
  std::int64_t grow_ahead = INT64_MAX;  ///< Iterations for which KV may be reserved in advance.
  std::int64_t mps_percent = 100;       ///< Of the SMs for steps that only decode (MuxServe).
  /// KV of a prompt comes with its sequence, but for the last token: only decoding costs time here.
  bool prompts_elsewhere = false;
};

/// Memory for KV at a place [blocks of one engine].
struct KvRoom {
  std::int64_t mine = 0;  ///< Reserved for the engine, or free.
  std::int64_t all = 0;   ///< What the device has for KV, whoever's.
};

/// Whoever has the pages. Blocks are those of one engine.
class KvBudget {
 public:
  virtual ~KvBudget() = default;
  /// Adjusts what is reserved for the engine at `place` towards `blocks`; returns what it has now,
  /// which may be less. `whole`: grows to all of `blocks` or not at all, so that two that both want
  /// more than there is do not pass the same pages to and fro.
  virtual std::int64_t reserve(KvPlace place, std::int64_t blocks, bool whole) = 0;
  /// What there is at `place`. At kGuest: what is lent to first positions; by default nothing.
  [[nodiscard]] virtual KvRoom room(KvPlace /*place*/) const { return {}; }
};

/// What became of sequences at the end of a run.
struct EngineOutputs {
  std::vector<SequenceId> first_tokens{};
  std::vector<SequenceId> finished{};
  std::vector<SequenceId> preempted{};  ///< They wait again and will be recomputed.
  bool starved = false;                 ///< It has work, and no pages to do any of it.
  std::int64_t moved = 0;               ///< Tokens whose KV moved to another device.

  void clear() { *this = EngineOutputs{}; }
};

/// How a hot engine's guests are served (WEAVER): each layer takes as long as the slower of
/// attention at home with what it stalls for the guests, and attention away.
struct GuestCost {
  std::int64_t per_layer_ps = 0;     ///< Transfer latency and mean wait for the host's kernel.
  std::int64_t stall_ps = 0;         ///< What of that wait outlasts attention at home, per layer.
  std::int64_t per_sequence_ps = 0;  ///< Transfer of one sequence's vectors, per layer.
  std::int64_t context_ps = 0;       ///< Per token of context, all layers, on the host GPU.
  std::int64_t move_ps = 0;          ///< To move one token's KV there or back, all layers.
};

/// One engine: iterations of continuous batching with chunked prefill, KV that grows by blocks, and
/// preemption by recomputation, newest first and the last one never. What runs in an iteration is
/// policy::plan_step's decision. Iterations that differ only in token counts are one *run*, which
/// is advanced in closed form. The owner calls finish_run() when boundary() has come.
/// A call costs O(B log B) for B sequences, whatever the number of iterations in a run.
class SimulatedEngine {
 public:
  SimulatedEngine(const StepModel& model, const EngineOptions& options)
      : model_(&model), options_(options) {}

  /// A sequence that has come; it runs from the next boundary on. Sequences that arrived earlier go
  /// first.
  void add(Instant now, const Sequence& sequence);
  /// Takes all out, oldest first, with the tokens they have; the iteration in progress is lost.
  std::vector<Sequence> take_all(Instant now);
  /// Brings sequences up to the last iteration that is complete.
  void settle(Instant now);

  /// When finish_run() is to be called next; nullopt: nothing to do.
  [[nodiscard]] std::optional<Instant> boundary() const;
  /// Ends the run with the iteration that is in progress at `now`, so that what changed counts.
  void interrupt(Instant now);
  /// Completes the run, admits who waits, and begins the next run.
  void finish_run(Instant now, KvBudget& budget, EngineOutputs& outputs);
  /// Gives up the newest running sequence at `place` to free its pages; it waits, and what was
  /// computed for it is lost.
  std::optional<SequenceId> preempt_newest(Instant now, KvPlace place);

  /// The guests' host is gone. First positions move home while the engine has no more than `room`
  /// blocks there, the newest first; who finds none waits, and is computed again.
  void return_guests(Instant now, std::int64_t room);

  /// Pages came free: try again.
  void wake(Instant now);

  /// GPU time per step of the other engines on the same GPUs (co-running law). From the next run.
  void set_neighbours(std::int64_t gpu_ps) { neighbours_ps_ = gpu_ps; }
  /// Steps take `scale` times as long and `extra` more: a share of the GPU, or pipeline stages.
  void set_pace(double scale, Duration extra) {
    scale_ = scale;
    extra_ = extra;
  }
  /// The next run begins so much later: KV is on its way.
  void pause(Duration time) { pause_ += time; }
  void set_guest_cost(const GuestCost& cost) { guest_cost_ = cost; }
  void set_options(const EngineOptions& options) { options_ = options; }

  [[nodiscard]] const EngineOptions& options() const { return options_; }
  /// GPU time of the first step of the run in progress; 0 when idle.
  [[nodiscard]] std::int64_t gpu_ps() const { return running_run() ? gpu_ps_ : 0; }
  /// Duration of a step of the run in progress; 0 when idle.
  [[nodiscard]] Duration step() const { return running_run() ? run_.at(0) : Duration{}; }
  [[nodiscard]] bool prefilling() const { return running_run() && prefilling_; }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::size_t load() const { return running_.size() + waiting_.size(); }
  [[nodiscard]] bool starved() const { return starved_; }
  /// Arrival of its oldest request; there is one. O(running).
  [[nodiscard]] Instant oldest() const;
  /// Blocks that running sequences use and have been promised.
  [[nodiscard]] std::int64_t blocks(KvPlace place) const { return blocks_after(place, 0); }
  /// Prompt tokens that are still to be computed, at the last boundary.
  [[nodiscard]] std::int64_t prefill_backlog() const;
  [[nodiscard]] const std::vector<Sequence>& running_sequences() const { return running_; }
  [[nodiscard]] const std::vector<Sequence>& waiting_sequences() const { return waiting_; }
  [[nodiscard]] std::int64_t tokens_done() const { return tokens_done_; }

  /// CHECK-fails when counts disagree.
  void check_invariants() const;

 private:
  struct Slice {
    std::size_t index = 0;  ///< In running_.
    std::int64_t tokens = 0;
  };

  [[nodiscard]] bool running_run() const { return count_ > 0; }
  [[nodiscard]] std::int64_t blocks_for(std::int64_t tokens) const;
  [[nodiscard]] std::int64_t promised(const Sequence& sequence) const;
  [[nodiscard]] std::int64_t blocks_after(KvPlace place, std::int64_t iterations) const;
  void apply_run(EngineOutputs& outputs);
  void progress(std::int64_t iterations);
  [[nodiscard]] Sequence* newest_at(KvPlace place);
  std::optional<SequenceId> give_up_newest(KvPlace place);
  void move_out(KvBudget& budget, EngineOutputs& outputs);
  void admit(KvBudget& budget);
  void choose_slices();
  [[nodiscard]] std::int64_t longest_run() const;
  enum class Secured : std::uint8_t { kYes, kChooseAgain, kStalled };
  Secured secure_memory(KvBudget& budget, EngineOutputs& outputs);
  [[nodiscard]] std::int64_t iterations_within(KvPlace place, std::int64_t blocks) const;
  void time_run();
  void begin_run(Instant now, KvBudget& budget, EngineOutputs& outputs);

  const StepModel* model_;
  EngineOptions options_;
  std::vector<Sequence> running_{};  ///< In order of admission.
  std::vector<Sequence> waiting_{};  ///< Oldest first.
  std::vector<Slice> slices_{};      ///< Of each iteration of the run.
  bool prefilling_ = false;          ///< Some slice is a chunk of a prompt.
  IterationRun run_{};
  Instant begun_{};
  std::int64_t count_ = 0;  ///< Iterations of the run; 0: none.
  Instant end_{};
  std::optional<Instant> wake_{};
  bool starved_ = false;
  std::int64_t gpu_ps_ = 0;
  std::int64_t neighbours_ps_ = 0;
  double scale_ = 1;
  Duration extra_{};
  Duration pause_{};
  GuestCost guest_cost_{};
  std::int64_t tokens_done_ = 0;
};

}  // namespace heddle::sim
