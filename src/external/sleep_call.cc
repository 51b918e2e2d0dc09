#include "external/sleep_call.h"

#include <string>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::external {

namespace asio = boost::asio;
using spec::EngineKind;
using spec::SuspendLevel;

namespace {

constexpr Duration kAskAgain = std::chrono::milliseconds(50);

/// What makes engines of a kind answer the calls.
std::string advice(EngineKind kind) {
  if (kind == EngineKind::kOllama) {
    return "it knows no model of that name";
  }
  if (kind == EngineKind::kTriton) {
    return "Triton has it in recent versions of its OpenAI frontend, with "
           "--model-control-mode=explicit";
  }
  return kind == EngineKind::kVllm
             ? "vLLM has it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
             : "SGLang has it with --enable-memory-saver";
}

Error without(EngineKind kind, SuspendLevel level) {
  return {Code::kFailedPrecondition,
          "engines of kind " + std::string(spec::name(kind)) + " have no call for " +
              std::string(spec::name(level))};
}

SleepCall post(std::string_view phase, std::string target, std::string body = {}) {
  return {.phase = phase,
          .request = {.method = "POST", .target = std::move(target), .body = std::move(body)}};
}

std::string generate(const std::string& model, int keep_alive) {
  spec::JsonWriter json;
  json.begin_object().key("model").string(model).key("stream").boolean(false);
  json.key("keep_alive").integer(keep_alive).end_object();
  return std::move(json).take();
}

/// Whether an answer to /api/ps of Ollama has the model among those that are loaded. A name without
/// a tag means the tag "latest".
bool loaded(const http::Reply& answer, const std::string& model) {
  const Result<spec::Json> json = spec::parse_json(answer.body, "answer");
  if (!json) {
    return false;
  }
  const std::string tagged = model.find(':') == std::string::npos ? model + ":latest" : model;
  for (const spec::Json& each : spec::items_at(*json, {"models"})) {
    const std::string* name = spec::value_at<std::string>(each, {"name"});
    if (name != nullptr && (*name == model || *name == tagged)) {
      return true;
    }
  }
  return false;
}

/// Whether an answer of status 200 says that nothing was done: `{"success": false}`.
bool denies(const http::Reply& answer) {
  if (!answer.body.starts_with('{')) {
    return false;
  }
  const Result<spec::Json> json = spec::parse_json(answer.body, "answer");
  const bool* done = json ? spec::value_at<bool>(*json, {"success"}) : nullptr;
  return done != nullptr && !*done;
}

/// Waits until Ollama has unloaded the model.
asio::awaitable<Result<void>> await_unloaded(Sleeper engine, Instant deadline) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (;;) {
    http::Request request;
    request.target = "/api/ps";
    request.patience = deadline - steady_now();
    const Result<http::Reply> answer = co_await http::exchange(engine.address, std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    if (!loaded(*answer, engine.model)) {
      co_return Result<void>();
    }
    if (steady_now() >= deadline) {
      co_return Error{Code::kDeadlineExceeded, "GET /api/ps: " + engine.model + " is still loaded"};
    }
    timer.expires_after(kAskAgain);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

asio::awaitable<Result<void>> make(HttpAddress address,
                                   EngineKind kind,
                                   Result<std::vector<SleepCall>> calls,
                                   Duration patience,
                                   PhaseTimer& timer) {
  if (!calls) {
    co_return calls.error();
  }
  const Instant deadline = steady_now() + patience;
  timer.skip();
  for (const SleepCall& each : *calls) {
    http::Request request = each.request;
    request.patience = deadline - steady_now();
    const Result<http::Reply> answer = co_await http::exchange(address, std::move(request));
    timer.note(each.phase);
    if (!answer) {
      co_return answer.error();
    }
    const std::string what = each.request.method + " " + each.request.target;
    constexpr int kOk = 200;
    constexpr int kNotFound = 404;
    if (answer->status != kOk) {
      std::string text = what + ": status " + std::to_string(answer->status) + " instead of 200";
      if (answer->status == kNotFound) {
        text += "; " + advice(kind);
      }
      co_return Error{Code::kUnavailable, text};
    }
    if (denies(*answer)) {
      co_return Error{Code::kUnavailable, what + ": it says that it did not"};
    }
  }
  co_return Result<void>();
}

}  // namespace

Result<std::vector<SleepCall>> sleep_calls(EngineKind kind,
                                           SuspendLevel level,
                                           const std::string& model) {
  const bool deep = level == SuspendLevel::kDeepSleep;
  if (kind == EngineKind::kVllm && spec::sleeps(level)) {
    return std::vector{post("sleep", deep ? "/sleep?level=2" : "/sleep?level=1")};
  }
  if (kind == EngineKind::kSglang && level == SuspendLevel::kSleep) {
    return std::vector{post("sleep", "/release_memory_occupation", "{}")};
  }
  if (kind == EngineKind::kOllama && deep) {
    return std::vector{post("unload", "/api/generate", generate(model, 0))};
  }
  if (kind == EngineKind::kTriton && deep) {
    return std::vector{post("unload", "/v1/models/" + model + "/unload")};
  }
  return without(kind, level);
}

Result<std::vector<SleepCall>> wake_calls(EngineKind kind,
                                          SuspendLevel level,
                                          const std::string& model) {
  if (kind == EngineKind::kVllm && level == SuspendLevel::kSleep) {
    return std::vector{post("wake", "/wake_up")};
  }
  if (kind == EngineKind::kVllm && level == SuspendLevel::kDeepSleep) {
    return std::vector{post("wake weights", "/wake_up?tags=weights"),
                       post("reload", "/collective_rpc", R"({"method": "reload_weights"})"),
                       post("wake KV", "/wake_up?tags=kv_cache"),
                       post("reset prefixes", "/reset_prefix_cache")};
  }
  if (kind == EngineKind::kSglang && level == SuspendLevel::kSleep) {
    return std::vector{post("wake", "/resume_memory_occupation", "{}")};
  }
  if (kind == EngineKind::kOllama && level == SuspendLevel::kDeepSleep) {
    return std::vector{post("load", "/api/generate", generate(model, -1))};
  }
  if (kind == EngineKind::kTriton && level == SuspendLevel::kDeepSleep) {
    return std::vector{post("load", "/v1/models/" + model + "/load")};
  }
  return without(kind, level);
}

asio::awaitable<Result<void>> put_to_sleep(Sleeper engine,
                                           SuspendLevel level,
                                           Duration patience,
                                           PhaseTimer& timer) {
  const Instant deadline = steady_now() + patience;
  auto calls = sleep_calls(engine.kind, level, engine.model);
  Result<void> slept =
      co_await make(engine.address, engine.kind, std::move(calls), patience, timer);
  if (slept && engine.kind == EngineKind::kOllama) {
    slept = co_await await_unloaded(std::move(engine), deadline);
    timer.note("unloaded");
  }
  co_return slept;
}

asio::awaitable<Result<void>> wake_up(Sleeper engine,
                                      SuspendLevel level,
                                      Duration patience,
                                      PhaseTimer& timer) {
  auto calls = wake_calls(engine.kind, level, engine.model);
  co_return co_await make(engine.address, engine.kind, std::move(calls), patience, timer);
}

}  // namespace heddle::external
