#include "sandbox/inside.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/self_process.h"
#include "sandbox/channel.h"
#include "text/text_model.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace heddle::sandbox {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

/// What a grammar may take [bytes]; 128 MiB of it are the address space of a large stack.
constexpr std::uint64_t kGrammarBytes = std::uint64_t{384} << 20U;
/// What opening and using the files of a model may take [bytes].
constexpr std::uint64_t kFilesBytes = std::uint64_t{2} << 30U;
/// Vocabularies are kept until they have so many tokens together; the last is kept in any case.
constexpr std::int64_t kTokensKept = 400'000;

/// Lets the address space grow by so much from now on: who wants more fails to get it, and ends.
void allow_memory(std::uint64_t bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  rlimit limit{};
  if (kSanitized || ::getrlimit(RLIMIT_AS, &limit) != 0) {
    return;  // A sanitizer's shadow is larger than any limit.
  }
  limit.rlim_cur = std::min<rlim_t>(pages * page + bytes, limit.rlim_max);
  (void)::setrlimit(RLIMIT_AS, &limit);
}

/// Texts in which tokenizers meet what they do not expect.
std::vector<std::string> probes() {
  constexpr std::size_t kRun = 10'000;
  std::vector<std::string> texts = {
      "",
      "The quick brown fox jumps over the lazy dog; 12,345.67 + 8e9 = ?\r\n\t{\"a\": [1, null]}",
      "naïve café ÅÄÖ ß ſ ﬁ Ω Ꙁ ẛ̣ e\u0301\u0323 \u1E9B\u0323 한글 각 日本語 漢字 ไทย עברית عربي "
      "हिन्दी",
      "\U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1E9\U0001F1EA \U0001D518 \U00020000 "
      "\uE000 \U000F0000 \U0010FFFF \uFEFF \uFFFD \u00A0 \u2028 \u3000 \u00AD",
      std::string("\0\x01\x1f\x7f", 4),
  };
  for (const std::string_view unit :
       {"a", " ", "\n", "1", "=", "é", "あ", "\U0001F600", "aB ", "_-"}) {
    std::string& text = texts.emplace_back();
    while (text.size() < kRun) {
      text += unit;
    }
  }
  return texts;
}

constexpr std::string_view kConversation =
    R"([{"role":"system","content":"You help."},{"role":"user","content":"Hi <|x|> é"},)"
    R"({"role":"assistant","content":"Hello"},{"role":"user","content":"Bye"}])";

}  // namespace

Result<std::shared_ptr<const text::GrammarVocabulary>> GrammarBench::vocabulary(
    const GrammarTrial& trial) {
  const auto found = std::ranges::find_if(opened_, [&](const Opened& opened) {
    return opened.directory == trial.directory && opened.vocab == trial.vocab;
  });
  if (found != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, found);
    return opened_.front().vocabulary;
  }
  const auto model = text::TextModel::open(trial.directory);
  if (!model) {
    return model.error();
  }
  auto made = text::GrammarVocabulary::make(**model, trial.vocab);
  if (!made) {
    return made.error();
  }
  opened_.push_front(
      {.directory = trial.directory, .vocab = trial.vocab, .vocabulary = std::move(*made)});
  std::int64_t tokens = trial.vocab;
  const auto gone = std::find_if(std::next(opened_.begin()), opened_.end(), [&](const auto& kept) {
    tokens += kept.vocab;
    return tokens > kTokensKept;
  });
  opened_.erase(gone, opened_.end());
  return opened_.front().vocabulary;
}

Result<void> GrammarBench::try_grammar(const GrammarTrial& trial, const Tell& tell) {
  const auto opened = vocabulary(trial);
  if (!opened) {
    return opened.error();
  }
  tell(kCompiling);
  const auto matcher = text::GrammarMatcher::open(*opened, trial.grammar);
  if (matcher) {
    return {};
  }
  Error error = matcher.error();
  if (error.code == Code::kCorrupt) {
    error.code = Code::kInvalidArgument;  // A library failed on what the client wrote.
  }
  return error;
}

Result<void> try_files(const std::string& directory, const Tell& tell) {
  const auto model = text::TextModel::open(directory, tell);
  if (!model) {
    return model.error();
  }
  tell("tokenizer.json");
  const text::Tokenizer& tokenizer = *(*model)->tokenizer();
  for (const std::string& text : probes()) {
    // What a text cannot be encoded as is the request's error, when one comes.
    for (const auto special : {text::SpecialTokens::kNone, text::SpecialTokens::kAdd}) {
      if (const auto ids = tokenizer.encode(text, special)) {
        (void)tokenizer.decode(*ids, text::ShowSpecial::kYes);
      }
    }
  }
  tell("chat templates");
  const text::Chat chat{.messages = kConversation};
  (void)(*model)->render(chat);  // A template may refuse it.
  return {};
}

void run(int socket) {
  follow_parent();
  log::configure({.process = "sandbox"});
  (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const rlimit no_core{};
  (void)::setrlimit(RLIMIT_CORE, &no_core);  // Its death is nothing to look into.
  const Tell tell = [socket](std::string_view what) {
    if (what == kCompiling) {
      allow_memory(kGrammarBytes);
    }
    (void)send_message(socket, encode(Answer{.begins = std::string(what)}), wait_for_ever);
  };
  GrammarBench bench;
  while (const std::optional<std::string> message = receive_message(socket, wait_for_ever)) {
    const Result<Question> question = decode_question(*message);
    if (!question) {
      break;
    }
    allow_memory(kFilesBytes);
    const Result<void> tried = question->files ? try_files(question->trial.directory, tell)
                                               : bench.try_grammar(question->trial, tell);
    Answer answer;
    if (!tried) {
      answer.error = tried.error();
    }
    if (!send_message(socket, encode(answer), wait_for_ever)) {
      break;
    }
  }
  log::flush();
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace heddle::sandbox
