#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"
#include "external/phase_timer.h"
#include "http/client.h"
#include "spec/engine.h"

namespace heddle::external {

/// One of the calls by which an engine is put to sleep or woken.
struct SleepCall {
  std::string_view phase;  ///< What it does, in a word: "reload".
  http::Request request{};
};

/// What engines of a kind are called with to sleep by `level`, or to wake from it, in this order.
/// `model` is what they call theirs, where they may have several.
///
///   kSleep, vLLM        /sleep?level=1: weights to host memory, KV dropped. /wake_up.
///   kSleep, SGLang      /release_memory_occupation and /resume_memory_occupation, likewise.
///   kDeepSleep, vLLM    /sleep?level=2: weights dropped, too. /wake_up?tags=weights makes room for
///                       them, /collective_rpc reload_weights reads them anew,
///                       /wake_up?tags=kv_cache makes room for KV, and /reset_prefix_cache forgets
///                       what was in it. Awake without reload_weights it answers, with nonsense.
///   kDeepSleep, Ollama  /api/generate without a prompt and with keep_alive 0: the model is
///   unloaded
///                       once its requests have ended. /api/generate with keep_alive -1 loads it.
///
///   kDeepSleep, Triton  /v1/models/MODEL/unload and /v1/models/MODEL/load of its OpenAI frontend,
///                       which answer when it is done; requests that run end first.
///
/// kFailedPrecondition for kinds that have no such call.
[[nodiscard]] Result<std::vector<SleepCall>> sleep_calls(spec::EngineKind kind,
                                                         spec::SuspendLevel level,
                                                         const std::string& model);
[[nodiscard]] Result<std::vector<SleepCall>> wake_calls(spec::EngineKind kind,
                                                        spec::SuspendLevel level,
                                                        const std::string& model);

/// Who is called.
struct Sleeper {
  HttpAddress address{};
  spec::EngineKind kind = spec::EngineKind::kGeneric;
  std::string model{};  ///< As it calls it.
};

/// Makes the calls, each when the one before was answered with status 200, and notes what each
/// took. kUnavailable where the answer is another, or says itself that nothing was done (vLLM of
/// prefixes that it does not forget): what an engine must be started with for this is said too. The
/// calls after it are not made. An engine that sleeps takes no notice of a call to
/// sleep deeper, and answers 200: it has to be woken before. Ollama answers before it has unloaded:
/// it is asked (/api/ps) until it has.
/// @param patience  For all of them together.
[[nodiscard]] boost::asio::awaitable<Result<void>> put_to_sleep(Sleeper engine,
                                                                spec::SuspendLevel level,
                                                                Duration patience,
                                                                PhaseTimer& timer);
[[nodiscard]] boost::asio::awaitable<Result<void>> wake_up(Sleeper engine,
                                                           spec::SuspendLevel level,
                                                           Duration patience,
                                                           PhaseTimer& timer);

}  // namespace heddle::external
