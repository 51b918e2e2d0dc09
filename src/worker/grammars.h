#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/thread.h"
#include "policy/batching.h"
#include "spec/sampling.h"
#include "text/grammar.h"

namespace heddle::worker {

/// Compiles the grammars of sequences, in a thread of its own, so that steps go on meanwhile: a
/// large schema takes seconds, and so does a large vocabulary, which the first grammar of a model
/// reads. Grammars are compiled in the order in which they were asked for, equal ones once; those
/// used last are kept, at their start, and copied for sequences to come. The thread gives way to
/// steps. The methods are for one other thread, the engine's.
class Grammars {
 public:
  using SequenceId = policy::SequenceId;
  using Matcher = std::shared_ptr<text::GrammarMatcher>;

  /// What is kept of grammars nobody waits for: so many, of so many bytes of text together. A
  /// grammar takes up to 250 times its text.
  static constexpr std::size_t kKeptMax = 16;
  static constexpr std::size_t kKeptBytesMax = std::size_t{512} << 10U;
  /// Copying a larger one is left to the thread, too: it takes a millisecond and more.
  static constexpr std::size_t kSmallBytes = std::size_t{16} << 10U;

  /// `on_compiled` is called in the thread when take() will not wait for this sequence.
  explicit Grammars(std::function<void(SequenceId)> on_compiled);
  /// Waits for what is being compiled.
  ~Grammars();
  Grammars(const Grammars&) = delete;
  Grammars& operator=(const Grammars&) = delete;

  /// kUnavailable where the thread cannot be started.
  Result<void> start();

  /// Where the tokens of a model are read, and how many it has.
  void describe(ModelId model, const std::string& directory, std::int64_t vocabulary);

  /// Asks for the grammar of a sequence of a model that was described. At once, if it is kept, or
  /// nothing: then `on_compiled` follows.
  [[nodiscard]] Matcher ask(SequenceId sequence, ModelId model, const spec::Grammar& grammar);
  /// What a sequence has asked for, and not got at once; waits until it is compiled. Errors as
  /// GrammarMatcher::open has them, or those of a tokenizer that cannot be read.
  [[nodiscard]] Result<Matcher> take(SequenceId sequence);
  /// A sequence that has asked needs it no more. Nobody else's: then it is not compiled.
  void forget(SequenceId sequence);
  /// Nothing of a model is needed any more, until the next ask().
  void forget(ModelId model);

  /// Grammars that were compiled, for tests.
  [[nodiscard]] std::uint64_t compiled() const;

 private:
  using Vocabulary = std::shared_ptr<const text::GrammarVocabulary>;

  struct Model {
    std::string directory{};
    std::int64_t size = 0;
    Vocabulary vocabulary{};      ///< Once a grammar asked for it.
    std::uint64_t forgotten = 0;  ///< How often: nothing is kept of what began before.
  };
  /// A grammar that somebody waits for.
  struct Job {
    ModelId model{};
    spec::Grammar grammar{};
    std::vector<SequenceId> sequences{};
  };
  struct Kept {
    ModelId model{};
    spec::Grammar grammar{};
    Matcher start{};  ///< Never moves.
  };

  using Lock = std::unique_lock<std::mutex>;  ///< Held before and after a call, not meanwhile.

  void run();
  [[nodiscard]] Result<Matcher> start_of(Lock& lock, ModelId model, const spec::Grammar& grammar);
  [[nodiscard]] Result<Vocabulary> vocabulary(Lock& lock, ModelId id);
  void hand_out(Lock& lock, const Result<Matcher>& start);
  [[nodiscard]] std::list<Kept>::iterator find_kept(ModelId model, const spec::Grammar& grammar);
  void keep(ModelId model, const spec::Grammar& grammar, const Matcher& start);

  std::function<void(SequenceId)> on_compiled_;

  mutable std::mutex mutex_{};  ///< Guards all below.
  std::condition_variable changed_{};
  std::map<ModelId, Model> models_{};
  std::list<Job> jobs_{};  ///< The first is under way, if `busy_`.
  bool busy_ = false;
  std::optional<SequenceId> copying_{};  ///< For whom a copy is being made.
  std::map<SequenceId, Result<Matcher>> made_{};
  std::list<Kept> kept_{};  ///< Used last: first.
  std::uint64_t compiled_ = 0;
  bool ending_ = false;
  Thread thread_{};
};

}  // namespace heddle::worker
