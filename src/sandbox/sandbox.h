#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "sandbox/message.h"
#include "sandbox/process.h"

/// Text of strangers, tried in a process that may die before the server or a worker reads it.
namespace heddle::sandbox {

using namespace std::chrono_literals;

/// Tries grammars.
class Trier {
 public:
  virtual ~Trier() = default;

  /// Compiles it against the vocabulary of its model, and computes its first mask; takes as long as
  /// that does. kInvalidArgument, with the reason, for one that cannot be used or is beyond a
  /// limit, which it will be again; other codes say that it could not be tried. From one thread at
  /// a time.
  virtual Result<void> try_grammar(const GrammarTrial& trial) = 0;
  /// Has all calls return soon, now and later. Any thread.
  virtual void stop() = 0;
};

/// What a trial may take.
struct Limits {
  Duration grammar_cpu = 2s;  ///< Processor time of compiling one grammar.
  Duration files_cpu = 30s;   ///< Processor time of opening the files of a model.
  Duration patience = 60s;    ///< By the clock, for either; meant for machines that are overloaded.
};

/// Tries things in processes of this program. The one for grammars is started when the first comes,
/// and again when it has died; it belongs to the thread that calls try_grammar().
class Sandbox final : public Trier {
 public:
  explicit Sandbox(Limits limits = {}) : limits_(limits) {}

  Result<void> try_grammar(const GrammarTrial& trial) override;
  void stop() override { stopping_ = true; }

  /// Opens what a model's directory says about text, reads and writes some texts with it, all in a
  /// process that ends with this call. kCorrupt, naming the file, where it cannot be used or ended
  /// the process. Any thread.
  Result<void> try_files(const std::string& directory);

 private:
  /// One attempt, in `process`, which is empty afterwards where it ended.
  std::variant<Answer, Silence> attempt(std::optional<Process>& process,
                                        const Question& question,
                                        std::string& began);

  Limits limits_;
  std::atomic<bool> stopping_ = false;
  std::optional<Process> kept_{};  ///< For grammars.
};

}  // namespace heddle::sandbox
