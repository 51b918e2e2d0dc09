#include "api/answer_writer.h"

#include <utility>

#include "api/sse.h"

namespace heddle::api {

namespace {

class CompletionWriter final : public AnswerWriter {
 public:
  CompletionWriter(AnswerHead head,
                   std::vector<std::string> openings,
                   bool with_usage,
                   bool every_step)
      : head_(std::move(head)),
        openings_(std::move(openings)),
        with_usage_(with_usage),
        every_step_(every_step),
        chunks_(head_, with_usage),
        told_(openings_.size()) {}

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    std::vector<Choice> opened = choices;
    for (Choice& choice : opened) {
      choice.text.insert(0, openings_[choice.index]);
    }
    return answer_json(head_, opened, usage);
  }

  void count(const Usage& usage) override { chunks_.count(usage); }

  /// Whose turn it is, and what answers begin with.
  std::string begin() override {
    std::string events;
    for (std::uint32_t index = 0; index < openings_.size(); ++index) {
      if (head_.kind == AnswerKind::kChat) {
        events += sse_event(chunks_.role(index));
      }
      if (!openings_[index].empty()) {
        events += sse_event(chunks_.text({.index = index, .text = openings_[index]}));
      }
    }
    return events;
  }

  std::string news(const Choice& part) override {
    if (is_empty(part)) {
      return every_step_ ? silent(part.index) : "";
    }
    if (head_.kind == AnswerKind::kCompletion || part.finish == spec::FinishReason::kNone) {
      told_[part.index] = true;
      return sse_event(chunks_.text(part));
    }
    // Clients take the end of a chat's choice for one that brings nothing else, as OpenAI's does.
    Choice before = part;
    before.finish = spec::FinishReason::kNone;
    const Choice last{.index = part.index, .finish = part.finish, .called = part.called};
    std::string events;
    if (!is_empty(before)) {
      events = sse_event(chunks_.text(before));
    } else if (every_step_ || !told_[part.index]) {
      // An answer without any text is one all the same: vLLM's benchmark wants to see its text.
      events = silent(part.index);
    }
    return events + sse_event(chunks_.text(last));
  }

  std::string end(const Usage& usage) override {
    return (with_usage_ ? sse_event(chunks_.usage(usage)) : "") + sse_event(kDone);
  }

  std::string fail(const ApiError& error) override {
    return sse_event(to_json(error)) + sse_event(kDone);
  }

 private:
  std::string silent(std::uint32_t index) {
    told_[index] = true;
    return sse_event(chunks_.silence(index));
  }

  AnswerHead head_;
  std::vector<std::string> openings_;
  bool with_usage_;
  bool every_step_;
  ChunkWriter chunks_;
  std::vector<bool> told_;  ///< By choice: something of its answer was.
};

}  // namespace

std::string AnswerWriter::waiting(std::string_view what) {
  return sse_comment(what);
}

void AnswerWriter::count(const Usage& usage) {
  (void)usage;
}

std::unique_ptr<AnswerWriter> completion_writer(AnswerHead head,
                                                std::vector<std::string> openings,
                                                bool with_usage,
                                                bool every_step) {
  return std::make_unique<CompletionWriter>(
      std::move(head), std::move(openings), with_usage, every_step);
}

}  // namespace heddle::api
