#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/requests.h"
#include "api/responses.h"
#include "gateway/answer.h"
#include "gateway/context.h"
#include "gateway/token_inbox.h"

namespace heddle::gateway {

/// A client's request, tokenised and checked.
struct GenerationJob {
  std::shared_ptr<CatalogModel> model{};
  std::shared_ptr<const ModelText> text{};
  api::AnswerHead head{};
  api::GenerationParams params{};
  std::vector<std::vector<TokenId>> prompts{};
  text::ToolFormat tools = text::ToolFormat::kNone;  ///< Of the calls in the answers.
  text::GiveCalls give_calls = text::GiveCalls::kWhole;
  text::ReasoningFormat reasoning = text::ReasoningFormat::kNone;
  std::string prompt_end{};         ///< How the prompt of a chat ends.
  std::vector<std::string> echo{};  ///< What the answers to each prompt begin with; may be empty.
  std::vector<std::vector<spec::SamplingParams>> choices{};  ///< For each prompt.
  /// So many prompts run at once, and the next when one of them has ended; 0: all. Only for those
  /// that become embeddings.
  std::size_t at_once = 0;

  /// How many places in its model's queue it takes.
  [[nodiscard]] std::size_t places() const { return at_once > 0 ? at_once : prompts.size(); }
  std::int32_t least_priority = INT32_MIN;  ///< The most urgent that it can be.
  Asker asker{};
  /// Of its key's quota, until it has ended; null where the key has none.
  std::shared_ptr<const Quotas::Reserved> reserved{};
  std::string request_id{};
  std::string endpoint{};
  std::shared_ptr<RequestSpan> span{};  ///< Null where it is in no trace.
};

/// The requests to the system behind that a client's request became, and the text of their answers.
/// Whatever way the coroutine that holds it ends, what still runs is cancelled, and the trace is
/// told to its end. Loop thread.
class LiveRequests : public std::enable_shared_from_this<LiveRequests> {
 public:
  /// kInvalidArgument for stop strings that are none. Nothing runs before start().
  static Result<std::shared_ptr<LiveRequests>> make(std::shared_ptr<Context> context,
                                                    GenerationJob job);
  ~LiveRequests();
  LiveRequests(const LiveRequests&) = delete;
  LiveRequests& operator=(const LiveRequests&) = delete;

  void start();

  [[nodiscard]] TokenInbox& inbox() { return *inbox_; }
  [[nodiscard]] const GenerationJob& job() const { return job_; }

  /// Takes what has arrived: the new text of each answer that got some, or that ended.
  std::vector<api::Choice> take();
  /// The hidden states that stand for a prompt.
  struct Embedding {
    std::size_t prompt = 0;
    std::vector<float> vector{};
  };
  /// As take(), of a job whose parameters ask for embeddings.
  std::vector<Embedding> take_embeddings();
  /// Whether all answers have ended.
  [[nodiscard]] bool complete() const { return open_ == 0; }
  [[nodiscard]] api::Usage usage() const;

  /// Time since the request arrived.
  [[nodiscard]] Duration age() const { return context_->now() - arrived_; }
  [[nodiscard]] Duration comment_interval() const { return context_->comment_interval; }
  /// Fails the inbox when a limit of time has passed.
  void check_time();
  /// Until when nothing has to be done unless something arrives.
  [[nodiscard]] Duration patience() const;
  /// What to tell a client who waits.
  [[nodiscard]] std::string waiting_for() const;

  /// How it ended, for the trace: the HTTP status and what went wrong.
  void end(int status, std::string error = {});

 private:
  LiveRequests(std::shared_ptr<Context> context, GenerationJob job);

  void start_next();
  void cancel();
  void begin_trace();
  static void note_cached(core::RequestRecord& record, const core::TokenEvent& event);
  [[nodiscard]] bool dispatched() const;
  [[nodiscard]] api::Spent spent() const;

  std::shared_ptr<Context> context_;
  GenerationJob job_;
  ModelQueue::Places held_{};
  std::shared_ptr<TokenInbox> inbox_;
  std::vector<std::shared_ptr<core::RequestRecord>> records_{};
  std::shared_ptr<RequestTrace> trace_{};
  std::vector<Answer> answers_{};  ///< Prompt by prompt, choice by choice.
  std::size_t open_ = 0;           ///< Answers that have not ended.
  std::size_t places_ = 0;         ///< Of the model's queue, which it has.
  std::size_t begun_ = 0;          ///< Records that were given to the system behind.
  bool started_ = false;
  bool cancelled_ = false;
  Instant arrived_{};
  Instant last_tokens_{};
  int status_ = 499;
  std::string error_ = "the client hung up";
};

}  // namespace heddle::gateway
