#include "sandbox/message.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heddle::sandbox {

namespace {

void put(std::string& bytes, std::uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number),
               sizeof(number));  // Same program, same order.
}

void put(std::string& bytes, std::string_view text) {
  put(bytes, text.size());
  bytes += text;
}

/// Takes values from the front; `failed` once there was one that is not there.
struct Reader {
  std::string_view bytes;
  bool failed = false;

  std::uint64_t number(std::uint64_t most) {
    std::uint64_t number = 0;
    if (bytes.size() < sizeof(number)) {
      failed = true;
      return 0;
    }
    std::memcpy(&number, bytes.data(), sizeof(number));
    bytes.remove_prefix(sizeof(number));
    failed = failed || number > most;
    return failed ? 0 : number;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number(bytes.size()));
    failed = failed || size > bytes.size();
    std::string text(bytes.substr(0, failed ? 0 : size));
    bytes.remove_prefix(text.size());
    return text;
  }
  [[nodiscard]] bool whole() const { return !failed && bytes.empty(); }
};

/// At most kErrorBytesMax bytes of it, in whole characters.
std::string_view shortened(std::string_view text) {
  if (text.size() <= kErrorBytesMax) {
    return text;
  }
  std::size_t end = kErrorBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return text.substr(0, end);
}

}  // namespace

std::string encode(const Question& question) {
  std::string bytes;
  put(bytes, question.files ? 1 : 0);
  put(bytes, question.trial.directory);
  put(bytes, static_cast<std::uint64_t>(question.trial.vocab));
  put(bytes, static_cast<std::uint64_t>(question.trial.grammar.kind));
  put(bytes, static_cast<std::uint64_t>(question.trial.grammar.thought));
  put(bytes, question.trial.grammar.text);
  return bytes;
}

std::string encode(const Answer& answer) {
  std::string bytes;
  put(bytes, answer.begins);
  put(bytes, answer.error ? 1 + static_cast<std::uint64_t>(answer.error->code) : 0);
  put(bytes, answer.error ? shortened(answer.error->message) : std::string_view());
  return bytes;
}

Result<Question> decode_question(std::string_view bytes) {
  Reader reader{bytes};
  Question question;
  question.files = reader.number(1) == 1;
  question.trial.directory = reader.text();
  question.trial.vocab = static_cast<std::int64_t>(reader.number(INT64_MAX));
  question.trial.grammar.kind = static_cast<spec::GrammarKind>(
      reader.number(static_cast<std::uint64_t>(spec::GrammarKind::kLark)));
  question.trial.grammar.thought =
      static_cast<spec::Thought>(reader.number(static_cast<std::uint64_t>(spec::Thought::kBegun)));
  question.trial.grammar.text = reader.text();
  return reader.whole() ? Result<Question>(std::move(question))
                        : Error{Code::kCorrupt, "a question to the sandbox is malformed"};
}

Result<Answer> decode_answer(std::string_view bytes) {
  Reader reader{bytes};
  Answer answer{.begins = reader.text()};
  const std::uint64_t code = reader.number(1 + static_cast<std::uint64_t>(Code::kCorrupt));
  std::string message = reader.text();
  if (code > 0) {
    answer.error = Error{static_cast<Code>(code - 1), std::move(message)};
  }
  return reader.whole() ? Result<Answer>(std::move(answer))
                        : Error{Code::kCorrupt, "an answer of the sandbox is malformed"};
}

}  // namespace heddle::sandbox
