// Grammars that clients send: whatever the text, it is refused or it rules an answer, which takes
// little stack. The first byte is the kind and what may be thought before the answer; the rest is
// the grammar or, where that byte is above 127, what to make one by.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "choices.h"
#include "make_grammar.h"
#include "text/grammar.h"
#include "text/test_model_directory.h"

#include <pthread.h>

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

/// Masks and tokens are computed by the engine's thread, whose stack is sixteen times this.
constexpr std::size_t kStackBytes = std::size_t{512} << 10U;

/// Draws an answer on a thread with a small stack.
void draw_on_small_stack(text::GrammarMatcher& grammar, Rng rng) {
  std::pair<text::GrammarMatcher*, Rng> arguments(&grammar, rng);
  pthread_attr_t attributes;
  HEDDLE_CHECK(pthread_attr_init(&attributes) == 0);
  HEDDLE_CHECK(pthread_attr_setstacksize(&attributes, kStackBytes) == 0);
  pthread_t thread{};
  const auto draw = [](void* given) -> void* {
    auto& [matcher, random] = *static_cast<decltype(arguments)*>(given);
    draw_answer(*matcher, random);
    return nullptr;
  };
  HEDDLE_CHECK(pthread_create(&thread, &attributes, draw, &arguments) == 0);
  HEDDLE_CHECK(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  heddle::log::configure({.level = heddle::log::Level::kError});  // Panics of the library are many.
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto kind = static_cast<spec::GrammarKind>(1 + data[0] % 3);
  fuzz::Choices choices(data + 1, size - 1);
  const spec::Grammar grammar{.kind = kind,
                              .text = data[0] > 127 ? fuzz::make_grammar(kind, choices)
                                                    : std::string(data + 1, data + size),
                              .thought = static_cast<spec::Thought>(data[0] / 3 % 3)};
  const auto matcher = text::GrammarMatcher::open(vocabulary(), grammar);
  if (matcher) {
    draw_on_small_stack(**matcher, Rng(size));
  } else {
    HEDDLE_CHECK(!matcher.error().message.empty());
  }
  return 0;
}
