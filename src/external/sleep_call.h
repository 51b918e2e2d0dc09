#pragma once

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "base/time.h"
#include "core/serving.h"
#include "external/http_call.h"
#include "spec/engine.h"

namespace heddle::external {

/// How engines of a kind are put to sleep and woken by their own calls: vLLM's /sleep (level 1:
/// weights to host memory, KV dropped) and /wake_up, SGLang's /release_memory_occupation and
/// /resume_memory_occupation. kFailedPrecondition for kinds that have none.
[[nodiscard]] Result<HttpCall> sleep_call(spec::EngineKind kind);
[[nodiscard]] Result<HttpCall> wake_call(spec::EngineKind kind);

/// Makes the call and looks at the status, which is to be 200. kUnavailable where it is not: what
/// an engine must be started with for this is said too.
[[nodiscard]] boost::asio::awaitable<Result<void>> put_to_sleep(core::EngineAddress address,
                                                                spec::EngineKind kind,
                                                                Duration patience);
[[nodiscard]] boost::asio::awaitable<Result<void>> wake_up(core::EngineAddress address,
                                                           spec::EngineKind kind,
                                                           Duration patience);

}  // namespace heddle::external
