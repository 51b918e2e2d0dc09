#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/siphash.h"
#include "base/time.h"
#include "collective/collective.h"
#include "device/device.h"
#include "engine/pipe_batch.h"
#include "ledger/drop_reason.h"
#include "memory/page_pool.h"
#include "policy/batching.h"
#include "spec/model_spec.h"
#include "spec/sampling.h"
#include "store/adapter.h"
#include "store/image_layout.h"
#include "text/grammar.h"

namespace heddle::ops {
class ExpertSource;
struct KernelTable;
struct PeerArea;
}  // namespace heddle::ops

namespace heddle::engine {

using policy::SequenceId;

/// A sequence to run: the prompt, and what was generated before it was interrupted, if it was.
struct SequenceStart {
  SequenceId id{};
  ModelId model{};
  std::vector<TokenId> tokens{};   ///< Prompt, then earlier output. At least one token.
  std::int64_t prompt_tokens = 0;  ///< How many of `tokens` are prompt.
  spec::SamplingParams params{};
  /// Compiled from params.grammar, at its start; null where nothing constrains the answer. The
  /// engine alone uses it from then on.
  std::shared_ptr<text::GrammarMatcher> grammar{};
  /// Only sequences of the same salt share cached prefixes, and of those the ones of one adapter.
  std::string cache_salt{};
  /// LoRA adapter that it goes through, which was opened for its model; null: none.
  std::shared_ptr<const store::Adapter> adapter{};
};

/// What a step did for one slice of its plan.
struct SliceResult {
  SequenceId sequence{};
  std::int64_t computed = 0;       ///< Tokens whose KV is now cached.
  std::optional<TokenId> token{};  ///< Sampled where the slice reached the last known token.
  std::int64_t position = 0;       ///< Index of `token` among the generated ones, from 0.
  spec::FinishReason finish = spec::FinishReason::kNone;
  spec::TokenDetails details{};  ///< Of `token`, as the parameters ask for them.
};

struct SequenceFailure {
  SequenceId sequence{};
  Error error{};
};

struct StepOutcome {
  std::vector<SliceResult> results{};
  /// Sequences whose slice did not run because no page was free for their KV. Nothing of theirs
  /// changed; whoever plans preempts somebody and tries again. A scheduling outcome, not an error.
  std::vector<SequenceId> starved{};
  /// Sequences whose model's load was abandoned or paused while the step waited for a stage of it.
  /// Nothing of theirs changed.
  std::vector<SequenceId> unready{};
  /// Sequences that cannot go on: their model's logits are not numbers, or their grammar takes more
  /// work than it may. To be removed.
  std::vector<SequenceFailure> failed{};
  bool ahead = false;  ///< Some of it was enqueued before it was asked for.
  /// Of leaders of pipelines (engine/pipe.h): batches that the next stage is to have. Their
  /// sequences are away until Pipes::finish() gives their results.
  std::vector<PipeBatch> sent{};
  std::vector<SequenceId> refused{};  ///< Pipes::finish() alone: a follower has forgotten them.
};

struct EngineOptions {
  std::int64_t max_batch_tokens = 512;  ///< Most tokens of one model in one step.
  /// Keep the KV of tokens that were computed, for sequences that begin with the same ones.
  bool prefix_cache = false;
  /// So many pages of the pool are for KV that is cached no longer, as its model has left or others
  /// needed the memory (memory::KvStore). Of no effect where the device has memory of its own.
  std::int64_t kv_pages = 0;
  SipKey prefix_secret{};  ///< Drawn by chance, where others may choose prompts.
  /// KV on its way to the whole model of a pipeline at once, of one sequence, at most [bytes]: it
  /// is in memory twice. core::GatherPace asks for less where others wait for it.
  std::size_t gather_bytes = std::size_t{16} << 20U;
  /// On an asynchronous device, enqueue the step after one that recurs before waiting for it.
  bool run_ahead = false;
  /// What runs in place of ops::kernels_for() the device, for measuring what each operation takes;
  /// outlives the engine. Null: those.
  const ops::KernelTable* kernels = nullptr;
};

struct AdapterUse;
class Gathers;
class Guests;
class KeptKv;
class KvShares;
class Pipes;

/// How well the prefix cache does, for one model since the engine began.
struct PrefixCounts {
  std::uint64_t queried_tokens = 0;  ///< Of sequences that asked for a prefix.
  std::uint64_t hit_tokens = 0;      ///< Of these, what they got,
  std::uint64_t host_tokens = 0;     ///< and of that, what was brought back for them.
  friend bool operator==(const PrefixCounts&, const PrefixCounts&) = default;
};

/// Owns an engine's workspace in its pool.
inline constexpr memory::OwnerId kWorkspaceOwner{~std::uint64_t{1}};

/// Runs the models of one device: knows sequences, their KV blocks, and how to take one step of a
/// plan. Decides nothing: what runs, who is preempted and which model is resident is decided above.
/// All models share the device's page pool and one stream. Used by one thread, the engine thread.
///
/// Promises (docs/contracts/engine.md): the tokens of a sequence depend on its model, prompt and
/// parameters alone: not on the batch, the chunking, preemption or what else runs. On a GPU this
/// holds up to the rounding of sums, whose order there depends on the shapes of a step.
class Engine {
 public:
  /// Made, used and destroyed by the engine thread. `device` and `pool` outlive it. Fails as
  /// Device::create_stream does, or with kInvalidArgument where no kernels exist for the device.
  static Result<std::unique_ptr<Engine>> create(device::Device& device,
                                                memory::PagePool& pool,
                                                const EngineOptions& options = {});
  ~Engine();

  /// From now on the workspace, which the models share in turn, has so many pages of the pool, at
  /// least as many as the registered models need. Its address never changes. kResourceExhausted,
  /// and nothing has changed, where the pool has too few.
  Result<void> set_workspace(std::int64_t pages);
  /// From now on CUDA graphs of steps take at most so many bytes of the device, by estimate
  /// (device::kRecordedBytes); those used last stay. 0: steps run unrecorded. Unlimited at first.
  void set_graph_bytes(std::uint64_t bytes);

  /// Registers a model, or a shard of one (spec::shard_of) or a stage (spec::stage_of), whose
  /// weights are, or will be, at `window` in `layout`. No layer is ready. Its KV has the type of
  /// the image's matrices, and its pages are counted by lease `kv_owner`. Where the workspace is
  /// too small for it that grows; kResourceExhausted if it cannot. kInvalidArgument where a page of
  /// the device is too small for one token of one layer or the heads are too wide, kCorrupt where
  /// the image is not this model's. Where its experts take turns (spec::Experts::slots) `experts`
  /// has them, which outlives the model.
  Result<void> add_model(ModelId id,
                         const spec::ModelSpec& model,
                         const store::ImageLayout& layout,
                         const std::byte* window,
                         memory::OwnerId kv_owner,
                         ops::ExpertSource* experts = nullptr);
  /// Puts a shard into a group with the other ranks of its model: before its first step, and again
  /// where a new group takes an abandoned one's place. `group` is of the shard's rank and as many
  /// ranks, as are `peers`, by which the ranks' devices exchange without the host, where they can;
  /// both outlive the model or the next set_group(). All ranks have peers, or none; where they
  /// have, all weights of all ranks are there. Null: the shard, which has no sequences, is in none.
  ///
  /// All ranks are told the same from then on, in the same order: shares, sequences, prefixes,
  /// preemptions and steps. Then they sample the same tokens, each for itself. Each batch begins
  /// with the ranks comparing what they run.
  void set_group(ModelId id, collective::Collective* group, const ops::PeerArea* peers = nullptr);
  /// The first `bytes` of the model's image are in place; stages within them may run. Never goes
  /// back. Any thread: a running step waits at stage i for exactly the bytes of stage i. Ignored
  /// for a model that is gone.
  void set_image_ready(ModelId id, std::uint64_t bytes);
  /// How much of it is [bytes]. Any thread; 0 for a model that is gone, or whose image never comes.
  [[nodiscard]] std::uint64_t image_ready(ModelId id) const;
  /// The rest will never come: a step that waits for it gives up. Any thread.
  void abandon_image(ModelId id);
  [[nodiscard]] bool image_abandoned(ModelId id) const;
  /// While it is paused a step that waits for it gives up, and so does one that comes to wait. Any
  /// thread; it is taken up again by the engine's, between steps.
  void pause_image(ModelId id, bool paused);
  /// Forgets a model. It has no sequences any more.
  void remove_model(ModelId id);

  /// Takes in a sequence of a registered model; holds no KV until it runs, nor its adapter's
  /// weights. kInvalidArgument if its tokens or biases are outside the vocabulary, leave no room in
  /// the context or in max_tokens, if what was generated is not what its grammar allows, or if its
  /// model cannot have its adapter: another type, a larger rank than ModelSpec::adapter_rank.
  Result<void> add_sequence(SequenceStart start);
  /// Gives a sequence that has computed nothing the KV of the longest prefix of its tokens that is
  /// cached; the last token is always left to compute. How many tokens it has computed then: 0
  /// where nothing is cached, or where all its tokens' states are wanted. What is kept beside the
  /// cache is brought back first, where that is quicker than computing it, all tokens taking
  /// `computing`; 0: nobody knows.
  std::int64_t take_prefix(SequenceId id, Duration computing = {});
  /// Frees its KV but keeps its tokens, to be computed again (preemption by recompute). What is
  /// cached of it stays as long as nobody needs the pages.
  void preempt(SequenceId id);
  /// Forgets the sequence and frees its KV, as preempt().
  void remove_sequence(SequenceId id);

  /// KV of sequences on pages of another device. Valid as long as the engine.
  [[nodiscard]] Guests guests();
  /// The stages of pipelines among its models. Likewise.
  [[nodiscard]] Pipes pipes();

  /// Pages that a sequence of `tokens` tokens of this model needs when alone on its pages. Layers
  /// with a sliding window need no more for more tokens once it is full.
  [[nodiscard]] std::int64_t kv_pages_for(ModelId id, std::int64_t tokens) const;
  /// Pages that the KV of this model's sequences holds now, with those of the adapters that they go
  /// through; of a follower none (Pipes::reserve), of a shard of its share.
  [[nodiscard]] std::int64_t kv_pages(ModelId id) const;

  /// Pages that hold cached prefixes, or adapters that no sequence goes through, and nothing else,
  /// of all models. Running sequences take them when the pool is empty, least recently used first.
  [[nodiscard]] std::int64_t cached_pages() const;
  /// Gives cached pages back to the pool, least recently used first, until at most `keep` are left.
  void trim_cached(std::int64_t keep, ledger::DropReason reason);
  /// By model, those that are gone included.
  [[nodiscard]] const std::map<ModelId, PrefixCounts>& prefix_counts() const;
  /// Cached pages given up so far.
  [[nodiscard]] const ledger::DropCounts& dropped_pages() const;

  /// Runs one step and waits for it, and at each stage for its weights. A slice is at most what its
  /// sequence has pending, a sequence is in at most one, and a batch is at most max_batch_tokens.
  /// An error means that the device is lost, or of a shard, its group: kUnavailable where that was
  /// abandoned, kCorrupt where the ranks did not run the same. It is abandoned then, so that no
  /// rank waits for this one.
  ///
  /// With EngineOptions::run_ahead, a plan of one batch that would be made again (stable_steps > 1)
  /// has the step after it enqueued before it is waited for, for all sequences that do not end with
  /// it for sure, if each one's next token depends on this one through the model alone (no grammar,
  /// no penalty on what was generated) and there are pages. The next run with any of these
  /// sequences in its plan gives the results of that, of those that were neither preempted nor
  /// removed, and does no more for that model: the rest of its batch is for a later step.
  Result<StepOutcome> run(const policy::StepPlan& plan);
  /// Waits for what was enqueued ahead, so that no page or window is in use by the device until the
  /// next run(), which has its results. To be called before pages of the pool go to anybody but
  /// sequences.
  void settle();

 private:
  friend class Gathers;
  friend class Guests;
  friend class KeptKv;
  friend class KvShares;
  friend class Pipes;
  friend std::vector<AdapterUse> adapters_of(const Engine& engine, ModelId id);
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The adapters of a model that are there, or were since it came.
[[nodiscard]] std::vector<AdapterUse> adapters_of(const Engine& engine, ModelId id);

}  // namespace heddle::engine
