#include "bench/run.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <memory>
#include <utility>
#include <variant>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "api/event_reader.h"
#include "base/clock.h"
#include "bench/answer_parser.h"
#include "bench/prompts.h"
#include "http/client.h"
#include "spec/json_writer.h"

namespace heddle::bench {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

using Prompt = std::variant<std::string, std::vector<TokenId>>;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kShowInterval = 250ms;
/// Lengths of the prompts that scale a tokenizer [words].
constexpr std::int64_t kFewWords = 8;
constexpr std::int64_t kMoreWords = 40;

void rethrow(const std::exception_ptr& failure) {
  if (failure) {
    std::rethrow_exception(failure);
  }
}

/// What went wrong, in the server's own words where it says it in JSON.
std::string refusal(AnswerParser& parser, const http::Reply& reply) {
  const std::string said = parser.parse(reply.body).error;
  return "status " + std::to_string(reply.status) + (said.empty() ? "" : ": " + said);
}

/// One run. Everything happens on its own loop, on the caller's thread.
class Runner {
 public:
  Runner(const RunOptions& options,
         ShotSource& shots,
         const std::function<void(const Progress&)>& show)
      : options_(options),
        shots_(shots),
        show_(show),
        client_(loop_.get_executor(),
                options.endpoint,
                {.access = {.api_key = options.api_key},
                 .user_agent = "heddle-bench",
                 .keep_alive = true}),
        prompts_(options.seed),
        results_(options.models, options.slo) {}

  Result<Results> run() {
    asio::signal_set interrupt(loop_, SIGINT);
    interrupt.async_wait([this](const boost::system::error_code& stopped, int) {
      if (!stopped) {
        loop_.stop();
      }
    });
    asio::co_spawn(loop_, main(interrupt), rethrow);
    loop_.run();
    if (failure_) {
      return *failure_;
    }
    return std::move(results_);
  }

 private:
  asio::awaitable<void> main(asio::signal_set& interrupt) {
    const bool ready = co_await prepare();
    if (ready) {
      start_ = steady_now();
      asio::co_spawn(loop_, report(), rethrow);
      if (options_.concurrency > 0) {
        for (std::int64_t i = 0; i < options_.concurrency; ++i) {
          ++open_;
          asio::co_spawn(loop_, keep_asking(), rethrow);
        }
      } else {
        ++open_;
        asio::co_spawn(loop_, ask_when_due(), rethrow);
      }
      while (open_ > 0) {
        ended_.expires_after(1h);
        co_await ended_.async_wait(kAwait);
      }
      reporting_ = false;
      show_timer_.cancel();
    }
    interrupt.cancel();
  }

  /// Finds the server and how it counts. False, with failure_, where that is not possible.
  asio::awaitable<bool> prepare() {
    const Result<void> found = co_await client_.resolve();
    if (!found) {
      failure_ = found.error();
      co_return false;
    }
    scales_.resize(options_.prompt_tokens.size());
    for (std::size_t i = scales_.size(); i < options_.models.size(); ++i) {
      const Result<WordSample> less = co_await sample(i, kFewWords);
      if (!less) {
        failure_ = less.error();
        co_return false;
      }
      // A model may be too small for the longer one; words are then taken to be alike.
      const Result<WordSample> more = co_await sample(i, kMoreWords);
      scales_.push_back(scale_through(more ? *less : WordSample{}, more ? *more : *less));
    }
    co_return true;
  }

  asio::awaitable<Result<WordSample>> sample(std::size_t model, std::int64_t words) {
    http::Request request = request_of(model, prompts_.words(words), 1, /*stream=*/false);
    const Result<http::Reply> reply = co_await client_.exchange(std::move(request));
    if (!reply) {
      co_return reply.error();
    }
    if (reply->status != 200) {
      co_return Error{.code = Code::kFailedPrecondition,
                      .message = "model \"" + options_.models[model] + "\" at " +
                                 options_.endpoint.url() + ": " + refusal(parser_, *reply)};
    }
    const AnswerNews news = parser_.parse(reply->body);
    co_return WordSample{.words = words, .tokens = news.prompt_tokens.value_or(words)};
  }

  /// The next request, unless a limit is reached. Its time is not waited for.
  bool next(Shot& shot) {
    const bool enough = (options_.requests > 0 && begun_ >= options_.requests) ||
                        (options_.duration > Duration{} && elapsed() > options_.duration);
    if (enough || !shots_.next(shot)) {
      return false;
    }
    const bool late =
        options_.concurrency == 0 && options_.duration > Duration{} && shot.at > options_.duration;
    begun_ += late ? 0 : 1;
    return !late;
  }

  /// Closed loop: one request after the other.
  asio::awaitable<void> keep_asking() {
    Shot shot;
    while (next(shot)) {
      co_await ask(shot, elapsed());
    }
    leave();
  }

  /// Open loop: each when it is due, however many are running.
  asio::awaitable<void> ask_when_due() {
    asio::steady_timer timer(loop_);
    Shot shot;
    while (next(shot)) {
      timer.expires_at(asio::steady_timer::time_point((start_ + shot.at).time_since_epoch()));
      co_await timer.async_wait(kAwait);
      ++open_;
      asio::co_spawn(loop_, ask_once(shot), rethrow);
    }
    leave();
  }
  asio::awaitable<void> ask_once(Shot shot) {
    co_await ask(shot, shot.at);
    leave();
  }

  void leave() {
    --open_;
    ended_.cancel();
  }

  asio::awaitable<void> ask(Shot shot, Duration due) {
    Row row{.model = shot.model, .due = due, .begun = elapsed()};
    std::vector<Duration> gaps;
    api::EventReader events;
    std::int64_t pieces = 0;
    std::optional<std::int64_t> counted;
    http::Request request =
        request_of(shot.model, prompt_of(shot), shot.output_tokens, /*stream=*/true);
    request.on_part = [&](std::string_view bytes) {
      const Duration now = elapsed();
      for (const std::string& event : events.push(bytes)) {
        const AnswerNews news = parser_.parse(event);
        if (news.content) {
          if (++pieces == 1) {
            row.first = now;
          } else {
            gaps.push_back(now - row.last);
          }
          row.last = now;
          ++tokens_;
        }
        if (!news.error.empty()) {
          row.error = news.error;
        }
        for (const std::string& score : news.scores) {
          row.digest = std::hash<std::string>()(std::to_string(row.digest) + ' ' + score);
        }
        row.prompt_tokens = news.prompt_tokens.value_or(row.prompt_tokens);
        counted = news.completion_tokens ? news.completion_tokens : counted;
      }
    };
    const Result<http::Reply> reply = co_await client_.exchange(std::move(request));
    row.ended = elapsed();
    row.completion_tokens = counted.value_or(pieces);
    if (!reply) {
      row.error = reply.error().message;
    } else if (reply->status != 200) {
      row.error = refusal(parser_, *reply);
    }
    failed_ += row.error.empty() ? 0 : 1;
    results_.add(std::move(row), gaps);
  }

  asio::awaitable<void> report() {
    while (reporting_) {
      show_({.begun = begun_,
             .ended = std::ssize(results_.rows()),
             .failed = failed_,
             .tokens = tokens_,
             .elapsed = elapsed()});
      show_timer_.expires_after(kShowInterval);
      co_await show_timer_.async_wait(kAwait);
    }
  }

  [[nodiscard]] http::Request request_of(std::size_t model,
                                         const Prompt& prompt,
                                         std::int64_t tokens,
                                         bool stream) const {
    return {.method = "POST",
            .target = options_.api == Api::kChat ? "/chat/completions" : "/completions",
            .body = body_of(model, prompt, tokens, stream),
            .patience = options_.patience};
  }

  [[nodiscard]] bool has_tokens(std::size_t model) const {
    return model < options_.prompt_tokens.size() && !options_.prompt_tokens[model].empty();
  }

  [[nodiscard]] Prompt prompt_of(const Shot& shot) {
    if (has_tokens(shot.model)) {
      return prompts_.tokens(options_.prompt_tokens[shot.model], shot.input_tokens);
    }
    return prompts_.words(scales_[shot.model].words(shot.input_tokens));
  }

  [[nodiscard]] std::string body_of(std::size_t model,
                                    const Prompt& prompt,
                                    std::int64_t tokens,
                                    bool stream) const {
    spec::JsonWriter json;
    json.begin_object().key("model").string(options_.models[model]);
    if (options_.api == Api::kChat) {
      json.key("messages").begin_array().begin_object().key("role").string("user");
      json.key("content").string(std::get<std::string>(prompt)).end_object().end_array();
    } else if (const auto* words = std::get_if<std::string>(&prompt)) {
      json.key("prompt").string(*words);
    } else {
      json.key("prompt").begin_array();
      for (const TokenId token : std::get<std::vector<TokenId>>(prompt)) {
        json.integer(token);
      }
      json.end_array();
    }
    json.key("max_tokens").integer(std::max<std::int64_t>(tokens, 1));
    if (options_.ignore_eos) {
      json.key("ignore_eos").boolean(true);
    }
    if (options_.logprobs) {
      json.key("logprobs").integer(1);
    }
    if (has_tokens(model) && model < options_.answer_tokens.size()) {
      constexpr int kCertain = 100;  // The most that the API allows.
      json.key("logit_bias").begin_object();
      json.key(std::to_string(options_.answer_tokens[model])).integer(kCertain).end_object();
    }
    if (stream) {
      json.key("stream").boolean(true);
      json.key("stream_options").begin_object().key("include_usage").boolean(true).end_object();
    }
    json.end_object();
    return std::move(json).take();
  }

  [[nodiscard]] Duration elapsed() const { return steady_now() - start_; }

  const RunOptions& options_;
  ShotSource& shots_;
  const std::function<void(const Progress&)>& show_;
  asio::io_context loop_{1};
  http::Client client_;
  PromptMaker prompts_;
  Results results_;
  AnswerParser parser_{};
  std::vector<TokenScale> scales_{};
  asio::steady_timer ended_{loop_};
  asio::steady_timer show_timer_{loop_};
  std::optional<Error> failure_{};
  Instant start_{};
  std::int64_t open_ = 0;  ///< Coroutines that ask.
  std::int64_t begun_ = 0;
  std::int64_t failed_ = 0;
  std::int64_t tokens_ = 0;
  bool reporting_ = true;
};

}  // namespace

Result<Results> run(const RunOptions& options,
                    ShotSource& shots,
                    const std::function<void(const Progress&)>& show) {
  return Runner(options, shots, show).run();
}

}  // namespace heddle::bench
