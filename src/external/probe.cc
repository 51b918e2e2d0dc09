#include "external/probe.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "http/client.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::external {

namespace asio = boost::asio;
using spec::EngineKind;

namespace {

constexpr std::string_view kPrompt = "1 2 3";
constexpr int kMaxTokens = 8;
constexpr int kAttempts = 3;
constexpr int kOk = 200;
constexpr int kClientErrors = 400;
constexpr int kTooMany = 429;
constexpr int kServerErrors = 500;

/// A model may have nothing to say to the prompt, and an answer that is empty tells nothing: where
/// engines can be asked to go on all the same, they are.
std::string request_body(EngineKind kind, const std::string& model, bool chat, int max_tokens) {
  spec::JsonWriter json;
  json.begin_object().key("model").string(model);
  if (chat) {
    json.key("messages").begin_array().begin_object();
    json.key("role").string("user").key("content").string(kPrompt).end_object().end_array();
  } else {
    json.key("prompt").string(kPrompt);
  }
  json.key("max_tokens").integer(max_tokens).key("temperature").integer(0);
  if (kind == EngineKind::kVllm || kind == EngineKind::kSglang) {
    json.key("min_tokens").integer(max_tokens);
  } else if (kind == EngineKind::kLlamaServer) {
    json.key("ignore_eos").boolean(true);
  }
  return std::move(json.end_object()).take();
}

/// What a thinking model has said counts as well.
std::string text_of(const spec::Json& object) {
  std::string all;
  for (const char* key : {"reasoning_content", "reasoning", "content", "text"}) {
    const auto* text = spec::value_at<std::string>(object, {key});
    all += text == nullptr ? "" : *text;
  }
  return all;
}

}  // namespace

std::optional<std::string> answer_text(const std::string& body) {
  const Result<spec::Json> json = spec::parse_json(body, "answer");
  if (!json) {
    return std::nullopt;
  }
  const spec::Json::Array& choices = spec::items_at(*json, {"choices"});
  if (choices.empty()) {
    return std::nullopt;
  }
  const spec::Json& choice = choices.front();
  const spec::Json* message = choice.find("message");
  if (message == nullptr && choice.find("text") == nullptr) {
    return std::nullopt;
  }
  return text_of(message == nullptr ? choice : *message);
}

Probe::Probe(HttpAddress address, EngineKind kind, std::string model)
    : address_(std::move(address)), kind_(kind), model_(std::move(model)) {}

asio::awaitable<Result<Probe::Answer>> Probe::ask(bool chat,
                                                  int max_tokens,
                                                  Duration patience) const {
  const std::string target = chat ? "/v1/chat/completions" : "/v1/completions";
  http::Request request{.method = "POST",
                        .target = target,
                        .body = request_body(kind_, model_, chat, max_tokens),
                        .patience = patience};
  const Result<http::Reply> answer = co_await http::exchange(address_, std::move(request));
  if (!answer) {
    co_return answer.error();
  }
  if (answer->status >= kClientErrors && answer->status < kServerErrors &&
      answer->status != kTooMany) {
    co_return Answer();
  }
  const std::optional<std::string> text = answer_text(answer->body);
  if (answer->status != kOk || !text) {
    co_return Error{Code::kUnavailable,
                    "probe at " + target + ": status " + std::to_string(answer->status) +
                        (text ? "" : " and no answer of that form")};
  }
  Answer said;
  said.understood = true;
  said.text = *text;
  co_return said;
}

asio::awaitable<Result<void>> Probe::learn(Duration patience) {
  const Instant deadline = steady_now() + patience;
  Result<Answer> first = co_await ask(true, kMaxTokens, patience);
  chat_ = true;
  if (first && !first->understood) {
    chat_ = false;
    first = co_await ask(false, kMaxTokens, deadline - steady_now());
  }
  if (!first) {
    co_return first.error();
  }
  expectation_ = Expectation::kNothing;
  if (!first->understood || first->text.empty()) {
    log::info("engine cannot be probed; its health is all there is to go by",
              {{"model", model_},
               {"reason", first->understood ? "its answer is empty" : "no call of that kind"}});
    co_return Result<void>();
  }
  const Result<Answer> second = co_await ask(chat_, kMaxTokens, deadline - steady_now());
  if (!second) {
    co_return second.error();
  }
  expectation_ = second->text == first->text ? Expectation::kSameAnswer : Expectation::kAnyAnswer;
  text_ = first->text;
  co_return Result<void>();
}

asio::awaitable<void> Probe::touch(Duration patience) const {
  (void)co_await ask(chat_, 1, patience);  // That it computes is all that is wanted.
}

asio::awaitable<Result<void>> Probe::again(Duration patience) {
  if (expectation_ == Expectation::kNothing) {
    co_return Result<void>();
  }
  const Instant deadline = steady_now() + patience;
  std::string said;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Result<Answer> answer = co_await ask(chat_, kMaxTokens, deadline - steady_now());
    if (!answer) {
      co_return answer.error();
    }
    said = answer->text;
    const bool right = expectation_ == Expectation::kSameAnswer ? said == text_ : !said.empty();
    if (answer->understood && right) {
      co_return Result<void>();
    }
  }
  constexpr std::size_t kShown = 80;
  co_return Error{Code::kCorrupt,
                  "the probe's answer is '" + said.substr(0, kShown) + "' and was '" +
                      text_.substr(0, kShown) + "'"};
}

asio::awaitable<Result<void>> Probe::again_briefly(Duration patience) {
  if (expectation_ == Expectation::kNothing) {
    co_return Result<void>();
  }
  const Instant deadline = steady_now() + patience;
  const Result<Answer> answer = co_await ask(chat_, 1, patience);
  if (!answer) {
    co_return answer.error();
  }
  const std::string& said = answer->text;
  const bool begins = expectation_ == Expectation::kAnyAnswer || text_.starts_with(said);
  if (answer->understood && !said.empty() && begins) {
    co_return Result<void>();
  }
  // It may be half a character, or a mark that engines do not show.
  const Result<void> right = co_await again(deadline - steady_now());
  co_return right;
}

}  // namespace heddle::external
