#include "text/grammar.h"

#include <utility>
#include <vector>

#include "text/rust_abi.h"

namespace heddle::text {
namespace {

/// Ids come from the tokenizer or from the engine, which know no negative ones.
std::vector<std::uint32_t> unsigned_ids(std::span<const TokenId> ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::make(const TextModel& model,
                                                                         std::int64_t size) {
  const std::vector<std::uint32_t> eos = unsigned_ids(model.eos());
  heddle_text_vocabulary* handle = nullptr;
  const Result<void> opened = rust::checked([&](auto* error) {
    return heddle_text_vocabulary_open(model.tokenizer()->handle(),
                                       eos.data(),
                                       eos.size(),
                                       static_cast<std::size_t>(size),
                                       &handle,
                                       error);
  });
  if (!opened) {
    return opened.error();
  }
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(handle));
}

GrammarVocabulary::~GrammarVocabulary() {
  heddle_text_vocabulary_free(handle_);
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const GrammarVocabulary> vocabulary,
                               heddle_text_grammar* handle)
    : vocabulary_(std::move(vocabulary)), handle_(handle) {}

GrammarMatcher::~GrammarMatcher() {
  heddle_text_grammar_free(handle_);
}

Result<std::shared_ptr<GrammarMatcher>> GrammarMatcher::open(
    std::shared_ptr<const GrammarVocabulary> vocabulary, const spec::Grammar& grammar) {
  heddle_text_grammar* handle = nullptr;
  const Result<void> opened = rust::checked([&](auto* error) {
    return heddle_text_grammar_open(vocabulary->handle_,
                                    static_cast<std::uint32_t>(grammar.kind),
                                    rust::lend(grammar.text),
                                    static_cast<std::uint32_t>(grammar.thought),
                                    &handle,
                                    error);
  });
  if (!opened) {
    return opened.error();
  }
  return std::shared_ptr<GrammarMatcher>(new GrammarMatcher(std::move(vocabulary), handle));
}

Result<std::shared_ptr<GrammarMatcher>> GrammarMatcher::clone() const {
  heddle_text_grammar* handle = nullptr;
  const Result<void> cloned = rust::checked(
      [&](auto* error) { return heddle_text_grammar_clone(handle_, &handle, error); });
  if (!cloned) {
    return cloned.error();
  }
  return std::shared_ptr<GrammarMatcher>(new GrammarMatcher(vocabulary_, handle));
}

Result<void> GrammarMatcher::mask(std::span<std::uint32_t> words) {
  return rust::checked([&](auto* error) {
    return heddle_text_grammar_mask(handle_, words.data(), words.size(), error);
  });
}

Result<void> GrammarMatcher::accept(std::span<const TokenId> tokens) {
  const std::vector<std::uint32_t> ids = unsigned_ids(tokens);
  return rust::checked([&](auto* error) {
    return heddle_text_grammar_accept(handle_, ids.data(), ids.size(), error);
  });
}

bool GrammarMatcher::ended() const {
  bool ended = true;
  const Result<void> asked =
      rust::checked([&](auto* error) { return heddle_text_grammar_ended(handle_, &ended, error); });
  return !asked || ended;
}

}  // namespace heddle::text
