#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/messages.h"
#include "core/worker_core.h"
#include "policy/admission.h"
#include "policy/batching.h"

namespace heddle::core {

/// One answer on its way.
struct Sequence {
  SequenceId id{};
  RequestId request{};
  std::uint32_t choice = 0;
  ModelId model{};
  std::int32_t priority = 0;
  std::uint64_t client = 0;
  Instant arrived{};
  Instant due{};       ///< Its first token.
  bool begun = false;  ///< Somebody has had a token of it, or it has had pages: it goes on first.
  bool compiling = false;  ///< Its grammar is, or its adapter is opened: no policy sees it yet.
  bool admitted = false;
  std::uint64_t rank = 0;              ///< Of admission, where prefill goes by that.
  std::int64_t tokens = 0;             ///< Known ones: prompt, and what was generated.
  std::int64_t computed = 0;           ///< Of these, how many have KV.
  std::int64_t remaining = 0;          ///< May still be generated.
  bool in_pipe = false;                ///< A slice of it is with other stages: in no plan.
  std::uint64_t turn = 0;              ///< When it came back from them, in turns of all.
  bool whole = false;                  ///< Runs in one step, SamplingParams::in_one_pass.
  bool packed = false;                 ///< Computes all itself, on as few pages as can be.
  std::int64_t away = 0;               ///< Of `computed`, how many are guests of another device.
  std::int64_t tried = 0;              ///< `computed` when it was last asked to move more of them.
  std::vector<KvSource> kv{};          ///< Who may have KV of it, until it was asked for.
  std::optional<Instant> fetches{};    ///< It waits for that KV, no longer than until then.
  std::optional<Instant> preempted{};  ///< When first since its last token; none: not since then.

  /// It could be admitted.
  [[nodiscard]] bool waits() const { return !admitted && !compiling; }
};

/// The sequences of one device and what policies see of them. Bookkeeping; decides nothing.
class Sequences {
 public:
  /// The sequences of a request, one per choice, not admitted. The request must be new.
  std::vector<SequenceId> add(const Submit& submit, Instant now);
  void remove(SequenceId id);
  /// Its grammar is compiled, and its adapter is open. Ignored if it is gone.
  void set_ready(SequenceId id);
  /// Takes in what a step did for one slice; true if the sequence has ended (it is still there).
  bool advance(const SliceDone& slice);

  /// `rank` as policy::SequenceView has it.
  void admit(SequenceId id, std::uint64_t rank = 0);
  /// Its KV is gone, its tokens are not.
  void preempt(SequenceId id, Instant now);
  /// The same, but it goes on at once, and without anybody's prefix.
  void pack(SequenceId id);
  /// A slice of it has gone on to the other stages of its pipeline; advance() brings it back.
  void set_in_pipe(SequenceId id);
  /// So many of its first tokens are guests now. Ignored if it is gone.
  void set_away(SequenceId id, std::int64_t tokens);
  /// It has KV of so many first tokens, of a cached prefix or of others. Ignored if it is gone.
  void take_prefix(SequenceId id, std::int64_t computed);
  /// It waits for KV of others until then, in no plan. nullopt: it goes on with what it has.
  void set_fetch(SequenceId id, std::optional<Instant> until);

  [[nodiscard]] const Sequence* find(SequenceId id) const;
  [[nodiscard]] std::vector<SequenceId> of_request(RequestId request) const;
  [[nodiscard]] std::optional<SequenceId> of_choice(RequestId request, std::uint32_t choice) const;
  [[nodiscard]] std::set<RequestId> requests_of(ModelId model) const;
  [[nodiscard]] std::int64_t count(ModelId model) const;
  [[nodiscard]] std::int64_t count_admitted(ModelId model) const;
  /// Whether any sequence is in a pipe.
  [[nodiscard]] bool any_in_pipe() const;
  /// Whether any sequence of the model has KV.
  [[nodiscard]] bool any_computed(ModelId model) const;
  [[nodiscard]] bool empty() const { return sequences_.empty(); }
  [[nodiscard]] const std::map<SequenceId, Sequence>& all() const { return sequences_; }
  [[nodiscard]] std::int64_t count_admitted() const;
  /// The oldest of those admitted; null if there is none.
  [[nodiscard]] const Sequence* oldest_admitted() const;

  /// Those that are admitted or wait to be.
  [[nodiscard]] std::vector<policy::AdmissionView> admission_views() const;
  /// The admitted sequences of these models, but for those in a pipe.
  [[nodiscard]] std::vector<policy::SequenceView> step_views(const std::set<ModelId>& models) const;

 private:
  std::uint64_t ids_given_ = 0;
  std::uint64_t turns_ = 0;
  std::map<SequenceId, Sequence> sequences_{};
  std::map<RequestId, std::set<SequenceId>> by_request_{};
};

}  // namespace heddle::core
