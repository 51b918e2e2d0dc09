#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapters.h"
#include "engine/decoder.h"
#include "engine/engine.h"
#include "engine/gather.h"
#include "engine/image_gate.h"
#include "engine/kv_share.h"
#include "engine/model_kv.h"
#include "engine/pass.h"
#include "engine/sequence.h"
#include "engine/step_graphs.h"
#include "engine/workspace.h"
#include "memory/cached_pages.h"
#include "memory/kv_store.h"
#include "memory/window.h"
#include "ops/context.h"

namespace heddle::engine {

/// The state of an Engine. Models and sequences come and go in engine.cc, steps are in
/// engine_steps.cc.
class Engine::Impl {
 public:
  Impl(device::Device& device,
       memory::PagePool& pool,
       std::unique_ptr<device::Stream> stream,
       const ops::KernelTable& kernels,
       memory::Window workspace,
       const EngineOptions& options)
      : device_(device),
        pool_(pool),
        workspace_(std::move(workspace)),
        stream_(std::move(stream)),
        context_{.stream = *stream_, .kernels = kernels},
        options_(options),
        passes_{Pass(device, graphs_, pass_memory_), Pass(device, graphs_, pass_memory_)} {
    if (options.kv_pages > 0 && device.properties().kind == device::Kind::kCpu) {
      store_ = std::make_unique<memory::KvStore>(pool, options.kv_pages);
    }
  }
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> set_workspace(std::int64_t pages);
  void set_graph_bytes(std::uint64_t bytes);
  Result<void> add_model(ModelId id,
                         const spec::ModelSpec& spec,
                         const store::ImageLayout& layout,
                         const std::byte* window,
                         memory::OwnerId kv_owner,
                         ops::ExpertSource* experts);
  void set_group(ModelId id, collective::Collective* group, const ops::PeerArea* peers);
  Result<std::int64_t> set_share(ModelId id, std::int64_t pages);
  void remove_model(ModelId id);
  /// The gate of a model, or nullptr. Any thread.
  std::shared_ptr<ImageGate> gate(ModelId id);

  Result<void> add_sequence(SequenceStart start);
  std::int64_t take_prefix(SequenceId id, Duration computing);
  void preempt(SequenceId id);
  /// Whether KV can be on another device's pages; kFailedPrecondition, with what is lacking.
  [[nodiscard]] Result<void> can_have_guests() const;
  [[nodiscard]] device::Stream& stream() const { return *stream_; }
  void remove_sequence(SequenceId id);
  Result<StepOutcome> run(const policy::StepPlan& plan);
  void settle();

  // Pipelines, in pipe.cc.
  void join_pipe(ModelId id);
  Result<void> reserve(ModelId id, std::int64_t pages);
  Result<void> run_stage(PipeBatch& batch);
  Result<StepOutcome> finish(const PipeBatch& batch);

  struct Model;
  Model& mutable_model(ModelId id);
  Sequence& sequence(SequenceId id);

  /// A batch of a pipeline's leader that is away.
  struct Away {
    struct Slice {
      PassSlice slice{};  ///< Without a sequence where that has gone, or begins anew.
      SequenceId sequence{};
      std::int64_t wanted = 0;  ///< Rows.
    };
    std::vector<Slice> slices{};
  };
  /// What a shard, or a follower of a pipeline, has for its KV: pages of the pool, and nobody
  /// else's.
  struct Reserve {
    explicit Reserve(device::Device& device) : pool(device, {}) {}
    /// Takes pages of `from` or gives some back, as far as they are not in use.
    Result<void> resize(memory::PagePool& from, memory::OwnerId owner, std::int64_t pages);

    memory::PagePool pool;
    memory::CachedPages cached{};
    std::set<device::PageId> pages{};
  };

  struct Model {
    memory::OwnerId kv_owner{};
    std::unique_ptr<Reserve> reserve{};  ///< Of a shard or a follower; outlives its KV.
    Decoder decoder;
    ModelKv kv;
    ModelAdapters adapters;
    std::int64_t sequences = 0;  ///< That belong to it.
    // Of a pipeline's leader:
    std::uint64_t batches = 0;             ///< Given so far.
    std::map<std::uint64_t, Away> away{};  ///< By number.
    std::vector<SequenceId> dropped{};     ///< Followers know them, and have not been told.
    // Of a follower:
    std::map<SequenceId, Sequence> followed{};  ///< Those of the leader, by its names.
  };

  [[nodiscard]] const Model& model(ModelId id) const;
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  [[nodiscard]] memory::CachedPages& cached() { return cached_; }
  [[nodiscard]] const std::map<ModelId, PrefixCounts>& prefix_counts() const { return counts_; }

 private:
  friend class Gathers;
  friend class KeptKv;
  friend class KvShares;

  /// A pass that was enqueued and whose results were not taken yet.
  struct Flight {
    ModelId model{};
    Pass* pass = nullptr;
    /// Each with its results, in their order. One that is ahead and whose sequence has gone, or
    /// begins anew, has none of it any more.
    std::vector<PassSlice> slices{};

    [[nodiscard]] std::size_t live() const;
    [[nodiscard]] bool has(SequenceId id) const;
  };

  /// KV of a sequence of stages that comes to the whole model: as if there were a sequence there.
  struct Gather {
    /// A piece that is away.
    struct Asked {
      std::uint64_t number = 0;
      std::int64_t begin = 0;
      std::int64_t end = 0;
      std::vector<std::int64_t> from{};  ///< As KvPiece has it, of the leader's own layers.
    };

    ModelId model{};
    ModelId into{};
    SequenceKv kv{};                   ///< Of `into`.
    std::vector<TokenId> tokens{};     ///< Those whose KV was asked for, or is there.
    std::optional<PrefixKeys> keys{};  ///< None where it has failed at once.
    std::int64_t there = 0;
    std::int64_t usable = 0;
    std::deque<Asked> asked{};
    /// Per group of `into`: blocks that begin below lack something, and are not kept.
    std::vector<std::int64_t> incomplete{};
    bool failed = false;
  };

  // KV that moves to the whole model, in gather.cc.
  Result<GatherState> ask(SequenceId id,
                          ModelId into,
                          std::int64_t tokens,
                          std::vector<KvPiece>& pieces);
  Result<void> add_to(KvPiece& piece);
  Result<std::optional<GatherState>> put(const KvPiece& piece);
  void end_gather(SequenceId id);
  Gather& gather(SequenceId id, ModelId into);
  [[nodiscard]] GatherState state_of(const Gather& gather) const;
  Result<KvPiece> ask_piece(Gather& gather, const Sequence& own, std::int64_t end);
  [[nodiscard]] bool is_whole(const KvPiece& piece, const Gather& gather) const;
  void take_in(Gather& gather, const Gather::Asked& asked, const std::vector<std::int64_t>& others);

  /// KV of a sequence that comes from others.
  struct Fetch {
    std::int64_t goal = 0;   ///< What they may have of it.
    std::int64_t there = 0;  ///< Positions that have come, and what was here before.
    /// Per group: the last position, and one more, that lacks something.
    std::vector<std::int64_t> incomplete{};
    std::int64_t prefix = 0;  ///< Whose states come with it.
    std::string states{};     ///< What has come of them.
  };

  // KV from others and for others, in kv_share.cc.
  Result<KvPart> give_kv(const KvWanted& wanted);
  std::optional<KvWanted> wanted_kv(SequenceId id);
  Result<KvHave> put_kv(SequenceId id, std::vector<KvPart> parts);
  Result<bool> copy_parts(const std::vector<KvPart>& parts, Sequence& own, Fetch& fetch);
  [[nodiscard]] static bool goes_on_from(const Fetch& fetch, const KvPlan& plan);
  std::int64_t end_fetch(SequenceId id);

  /// Before the model's first step, and once: how its products are done best.
  void survey(ModelId id);
  [[nodiscard]] memory::KvKeeper keeper_of(ModelId id, const spec::ModelSpec& spec);
  void bring_back(Sequence& own, Duration computing);

  [[nodiscard]] std::int64_t workspace_needed() const;
  Result<void> fit_workspace();
  Activations use_workspace(const Model& model);
  /// The pass that is not in use by what is ahead.
  Pass& free_pass() { return passes_[ahead_ && ahead_->pass == passes_.data() ? 1 : 0]; }

  std::vector<PassSlice> admit(const policy::ModelBatch& batch, Model& model, StepOutcome& outcome);
  [[nodiscard]] AdapterSending adapter_sending();
  [[nodiscard]] static bool begin_with_adapter(Sequence& own, Model& model, StepOutcome& outcome);
  static void leave_adapter(Sequence& own, Model& model);
  Result<void> run_batch(const policy::ModelBatch& batch, bool recurs, StepOutcome& outcome);
  Result<void> run_pass(Flight& flight, bool recurs);
  [[nodiscard]] bool is_ahead(const policy::ModelBatch& batch) const;
  [[nodiscard]] static bool goes_on(const policy::ModelBatch& batch, const Flight& flight);
  [[nodiscard]] bool ends_for_sure(const Sequence& own) const;
  [[nodiscard]] std::vector<PassSlice> slices_after(const Flight& flight) const;
  void fly_ahead(const Flight& flight);
  Result<void> send_batch(const policy::ModelBatch& batch, StepOutcome& outcome);
  void tell_unready(std::span<const PassSlice> slices, Model& model, StepOutcome& outcome);
  [[nodiscard]] static PipeSlice pipe_slice(const PassSlice& slice, Sequence& own);
  [[nodiscard]] static Result<void> check_batch(const PipeBatch& batch,
                                                const Model& model,
                                                std::int64_t most_tokens);
  [[nodiscard]] bool follow(const PipeSlice& slice, Model& model);
  void drop_followed(Model& model, SequenceId id);
  void forget_in_pipe(Sequence& own);
  void forget_ahead(const Sequence& own);

  void take_results(const Flight& flight, StepOutcome& outcome);
  static void count_computed(const PassSlice& slice, Sequence& own, Model& model);
  void note_scores(const PassSlice& slice, std::vector<spec::PromptToken> scored);
  void finish_slice(const PassSlice& slice,
                    std::optional<TokenId> token,
                    spec::TokenDetails details,
                    Model& model,
                    StepOutcome& outcome);
  void pool_slice(const PassSlice& slice,
                  std::span<const float> states,
                  Model& model,
                  StepOutcome& outcome);

  device::Device& device_;
  memory::PagePool& pool_;
  /// As many addresses as the device has pages; of its pages the first ones are mapped, as far as
  /// they were needed.
  memory::Window workspace_;
  std::vector<device::PageId> workspace_pages_{};
  std::unique_ptr<device::Stream> stream_;  ///< Ends before what it was lent.
  ops::OpContext context_;
  EngineOptions options_;
  std::mutex gates_mutex_{};
  std::map<ModelId, std::shared_ptr<ImageGate>> gates_{};  ///< Guarded by gates_mutex_.
  memory::CachedPages cached_{};
  std::unique_ptr<memory::KvStore> store_{};  ///< Null: nothing is kept.
  Duration page_back_{};                      ///< What bringing one page back took, lately.
  std::uint64_t declined_tokens_ = 0;
  std::map<ModelId, PrefixCounts> counts_{};
  std::map<ModelId, Model> models_{};
  std::set<ModelId> surveyed_{};  ///< Of models that are, or were.
  std::map<SequenceId, Sequence> sequences_{};
  std::map<SequenceId, Gather> gathers_{};
  std::uint64_t pieces_asked_ = 0;
  std::map<SequenceId, Fetch> fetches_{};
  StepGraphs graphs_{};
  std::shared_ptr<PassMemory> pass_memory_ = std::make_shared<PassMemory>();
  std::array<Pass, 2> passes_;     ///< One runs while the next is enqueued.
  std::optional<Flight> ahead_{};  ///< Enqueued before the step that asks for it.
  std::optional<Error> failed_{};  ///< What settle() found, for the next step.
};

}  // namespace heddle::engine
