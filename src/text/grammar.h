#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "spec/sampling.h"
#include "text/text_model.h"

struct heddle_text_grammar;
struct heddle_text_vocabulary;

namespace heddle::text {

/// The tokens of a model as grammars see them. Made once for a model, at a cost that grows with the
/// vocabulary (tens of milliseconds). Immutable; any thread may use it.
class GrammarVocabulary {
 public:
  /// @param size  Of the model's vocabulary, which may be larger than the tokenizer's.
  static Result<std::shared_ptr<const GrammarVocabulary>> make(const TextModel& model,
                                                               std::int64_t size);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

 private:
  friend class GrammarMatcher;
  explicit GrammarVocabulary(heddle_text_vocabulary* handle) : handle_(handle) {}

  heddle_text_vocabulary* handle_;  ///< Owned.
};

/// Where an answer stands in its grammar, and so which tokens may come next. A pure function of the
/// grammar and the tokens taken in, wherever it is computed again. Compiling and masks are limited
/// by counts of work (rust/src/grammar.rs). Owned by one thread at a time.
class GrammarMatcher {
 public:
  /// kInvalidArgument, with the reason, for a grammar that is malformed, uses what is not supported
  /// (no keyword of a schema is ignored), is too large, or that no text conforms to.
  static Result<std::shared_ptr<GrammarMatcher>> open(
      std::shared_ptr<const GrammarVocabulary> vocabulary, const spec::Grammar& grammar);
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  /// Another one that stands where this one does; far cheaper than open(). They share nothing.
  [[nodiscard]] Result<std::shared_ptr<GrammarMatcher>> clone() const;

  /// Sets bit i % 32 of word i / 32 for each token i that may come next, and clears the others. At
  /// least one is set: an end of sequence where the text may end. kInvalidArgument when this step
  /// would cost more than the limit.
  Result<void> mask(std::span<std::uint32_t> words);

  /// Takes in tokens that were drawn. kInvalidArgument for one that the grammar does not allow.
  Result<void> accept(std::span<const TokenId> tokens);

  /// Whether the text is complete and nothing may follow it.
  [[nodiscard]] bool ended() const;

 private:
  GrammarMatcher(std::shared_ptr<const GrammarVocabulary> vocabulary, heddle_text_grammar* handle);

  std::shared_ptr<const GrammarVocabulary> vocabulary_;  ///< Outlives the handle.
  heddle_text_grammar* handle_;                          ///< Owned.
};

}  // namespace heddle::text
