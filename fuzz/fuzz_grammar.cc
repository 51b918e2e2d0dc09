// Grammars that clients send: whatever the text, it is refused or it rules an answer. The first
// byte is the kind and what may be thought before the answer, the rest the grammar.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "text/grammar.h"
#include "text/test_model_directory.h"

namespace {

using namespace heddle;

constexpr std::int64_t kVocab = 130;  // ASCII, the end, a marker.
constexpr int kSteps = 40;

std::shared_ptr<const text::GrammarVocabulary> vocabulary() {
  static const std::shared_ptr<const text::GrammarVocabulary> kept = [] {
    const text::ByteModelDirectory directory(0, 128);
    const auto model = text::TextModel::open(directory.path());
    HEDDLE_CHECK(model.has_value());
    return text::GrammarVocabulary::make(**model, kVocab).value();
  }();
  return kept;
}

/// Draws an answer, as an engine would: every mask leaves something, and what it leaves is
/// accepted.
void draw_answer(text::GrammarMatcher& grammar, Rng& rng) {
  std::vector<std::uint32_t> mask((kVocab + 31) / 32);
  for (int step = 0; step < kSteps && !grammar.ended(); ++step) {
    if (!grammar.mask(mask)) {
      return;  // Beyond a limit: the sequence would fail.
    }
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < kVocab; ++token) {
      if (((mask[static_cast<std::size_t>(token) / 32] >> (token % 32)) & 1U) != 0) {
        allowed.push_back(token);
      }
    }
    HEDDLE_CHECK(!allowed.empty());
    const TokenId token = allowed[rng.below(allowed.size())];
    if (const Result<void> taken = grammar.accept({&token, 1}); !taken) {
      // A limit may be met here, too; nothing else may.
      HEDDLE_CHECK(grammar.ended());
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const spec::Grammar grammar{.kind = static_cast<spec::GrammarKind>(1 + data[0] % 3),
                              .text = std::string(data + 1, data + size),
                              .thought = static_cast<spec::Thought>(data[0] / 3 % 3)};
  const auto matcher = text::GrammarMatcher::open(vocabulary(), grammar);
  if (matcher) {
    Rng rng(size);
    draw_answer(**matcher, rng);
  }
  return 0;
}
