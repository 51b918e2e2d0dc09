#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sandbox/message.h"
#include "text/grammar.h"

namespace heddle::sandbox {

/// What a process that compiles a grammar says that it begins with.
inline constexpr std::string_view kCompiling = "compiling";

/// Told what is begun with.
using Tell = std::function<void(std::string_view what)>;

/// Compiles grammars; keeps the vocabularies that were used last. One thread at a time.
class GrammarBench {
 public:
  Result<void> try_grammar(const GrammarTrial& trial, const Tell& tell);

 private:
  struct Opened {
    std::string directory{};
    std::int64_t vocab = 0;
    std::shared_ptr<const text::GrammarVocabulary> vocabulary{};
  };
  Result<std::shared_ptr<const text::GrammarVocabulary>> vocabulary(const GrammarTrial& trial);

  std::list<Opened> opened_{};  ///< Used last comes first.
};

/// Opens the text part of a model's directory and uses it.
Result<void> try_files(const std::string& directory, const Tell& tell);

/// The process: answers what comes over the socket until that is closed.
[[noreturn]] void run(int socket);

}  // namespace heddle::sandbox
