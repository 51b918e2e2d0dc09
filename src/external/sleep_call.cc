#include "external/sleep_call.h"

#include <string>
#include <utility>

namespace heddle::external {

namespace asio = boost::asio;

namespace {

/// What makes engines of a kind answer the call.
std::string advice(spec::EngineKind kind) {
  return kind == spec::EngineKind::kVllm
             ? "vLLM has it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
             : "SGLang has it with --enable-memory-saver";
}

Error without(spec::EngineKind kind) {
  return {Code::kFailedPrecondition,
          "engines of kind " + std::string(spec::name(kind)) + " have no call to sleep by"};
}

asio::awaitable<Result<void>> make(core::EngineAddress address,
                                   spec::EngineKind kind,
                                   Result<HttpCall> call,
                                   Duration patience) {
  if (!call) {
    co_return call.error();
  }
  const Result<HttpAnswer> answer = co_await http_call(std::move(address), *call, patience);
  if (!answer) {
    co_return answer.error();
  }
  constexpr int kOk = 200;
  constexpr int kNotFound = 404;
  if (answer->status != kOk) {
    std::string text = call->method + " " + call->target + ": status " +
                       std::to_string(answer->status) + " instead of 200";
    if (answer->status == kNotFound) {
      text += "; " + advice(kind);
    }
    co_return Error{Code::kUnavailable, text};
  }
  co_return Result<void>();
}

}  // namespace

Result<HttpCall> sleep_call(spec::EngineKind kind) {
  switch (kind) {
    case spec::EngineKind::kVllm:
      return HttpCall{.method = "POST", .target = "/sleep?level=1"};
    case spec::EngineKind::kSglang:
      return HttpCall{.method = "POST", .target = "/release_memory_occupation", .body = "{}"};
    case spec::EngineKind::kGeneric:
    case spec::EngineKind::kLlamaServer:
    case spec::EngineKind::kOllama:
      break;
  }
  return without(kind);
}

Result<HttpCall> wake_call(spec::EngineKind kind) {
  switch (kind) {
    case spec::EngineKind::kVllm:
      return HttpCall{.method = "POST", .target = "/wake_up"};
    case spec::EngineKind::kSglang:
      return HttpCall{.method = "POST", .target = "/resume_memory_occupation", .body = "{}"};
    case spec::EngineKind::kGeneric:
    case spec::EngineKind::kLlamaServer:
    case spec::EngineKind::kOllama:
      break;
  }
  return without(kind);
}

asio::awaitable<Result<void>> put_to_sleep(core::EngineAddress address,
                                           spec::EngineKind kind,
                                           Duration patience) {
  return make(std::move(address), kind, sleep_call(kind), patience);
}

asio::awaitable<Result<void>> wake_up(core::EngineAddress address,
                                      spec::EngineKind kind,
                                      Duration patience) {
  return make(std::move(address), kind, wake_call(kind), patience);
}

}  // namespace heddle::external
