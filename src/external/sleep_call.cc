#include "external/sleep_call.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "spec/json_view.h"

namespace heddle::external {

namespace asio = boost::asio;
using spec::EngineKind;
using spec::SuspendLevel;

namespace {

/// What makes engines of a kind answer the calls.
std::string advice(EngineKind kind) {
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

/// Whether an answer of status 200 says that nothing was done: `{"success": false}`.
bool denies(const http::Reply& answer) {
  if (!answer.body.starts_with('{')) {
    return false;
  }
  const Result<spec::Json> json = spec::parse_json(answer.body, "answer");
  const bool* done = json ? spec::value_at<bool>(*json, {"success"}) : nullptr;
  return done != nullptr && !*done;
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

Result<std::vector<SleepCall>> sleep_calls(EngineKind kind, SuspendLevel level) {
  const bool deep = level == SuspendLevel::kDeepSleep;
  if (kind == EngineKind::kVllm && spec::sleeps(level)) {
    return std::vector{post("sleep", deep ? "/sleep?level=2" : "/sleep?level=1")};
  }
  if (kind == EngineKind::kSglang && level == SuspendLevel::kSleep) {
    return std::vector{post("sleep", "/release_memory_occupation", "{}")};
  }
  return without(kind, level);
}

Result<std::vector<SleepCall>> wake_calls(EngineKind kind, SuspendLevel level) {
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
  return without(kind, level);
}

asio::awaitable<Result<void>> put_to_sleep(HttpAddress address,
                                           EngineKind kind,
                                           SuspendLevel level,
                                           Duration patience,
                                           PhaseTimer& timer) {
  return make(std::move(address), kind, sleep_calls(kind, level), patience, timer);
}

asio::awaitable<Result<void>> wake_up(HttpAddress address,
                                      EngineKind kind,
                                      SuspendLevel level,
                                      Duration patience,
                                      PhaseTimer& timer) {
  return make(std::move(address), kind, wake_calls(kind, level), patience, timer);
}

}  // namespace heddle::external
