#include "api/answer_writer.h"

#include <utility>

#include "api/sse.h"

namespace heddle::api {

namespace {

class CompletionWriter final : public AnswerWriter {
 public:
  CompletionWriter(AnswerHead head, std::vector<std::string> openings, bool with_usage)
      : head_(std::move(head)),
        openings_(std::move(openings)),
        with_usage_(with_usage),
        chunks_(head_, with_usage) {}

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    std::vector<Choice> opened = choices;
    for (Choice& choice : opened) {
      choice.text.insert(0, openings_[choice.index]);
    }
    return answer_json(head_, opened, usage);
  }

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
      return "";
    }
    if (head_.kind == AnswerKind::kCompletion || part.finish == spec::FinishReason::kNone) {
      return sse_event(chunks_.text(part));
    }
    // Clients take the end of a chat's choice for one that brings nothing else, as OpenAI's does.
    Choice before = part;
    before.finish = spec::FinishReason::kNone;
    const Choice last{.index = part.index, .finish = part.finish, .called = part.called};
    return (is_empty(before) ? "" : sse_event(chunks_.text(before))) +
           sse_event(chunks_.text(last));
  }

  std::string end(const Usage& usage) override {
    return (with_usage_ ? sse_event(chunks_.usage(usage)) : "") + sse_event(kDone);
  }

  std::string fail(const ApiError& error) override {
    return sse_event(to_json(error)) + sse_event(kDone);
  }

 private:
  AnswerHead head_;
  std::vector<std::string> openings_;
  bool with_usage_;
  ChunkWriter chunks_;
};

}  // namespace

std::string AnswerWriter::waiting(std::string_view what) {
  return sse_comment(what);
}

std::unique_ptr<AnswerWriter> completion_writer(AnswerHead head,
                                                std::vector<std::string> openings,
                                                bool with_usage) {
  return std::make_unique<CompletionWriter>(std::move(head), std::move(openings), with_usage);
}

}  // namespace heddle::api
