#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/http_address.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "bench/load.h"
#include "bench/prompts.h"
#include "bench/results.h"

namespace heddle::bench {

enum class Api : std::uint8_t { kChat, kCompletions };

struct RunOptions {
  HttpAddress endpoint{};  ///< Of the API.
  std::string api_key{};   ///< Empty for none.
  Api api = Api::kChat;
  std::vector<std::string> models{};  ///< Names, by the index of Shot::model.
  std::int64_t concurrency = 0;       ///< Closed loop: so many at once. 0: open, as shots are due.
  std::int64_t requests = 0;          ///< At most so many; 0: no limit.
  Duration duration{};                ///< Nothing is begun later than this; 0: no limit.
  Duration patience{};                ///< For one request.
  bool ignore_eos = false;            ///< Ask for all output tokens, in the extension of vLLM's.
  bool logprobs = false;              ///< Ask for them, for Row::digest (kCompletions).
  std::uint64_t seed = 0;             ///< Of the prompts.
  Slo slo{};
  /// Of each model, the tokens that its prompts are drawn from, which are lists of tokens then, as
  /// long as shots say (kCompletions). Of a model that has none here: as many words. Of one for
  /// which there is no list: words, of which there are as many as a few requests before the run
  /// show to come to about that length.
  std::vector<std::vector<TokenId>> prompt_tokens{};
  /// Of each model that has prompt tokens, the one that its answers are to be made of (by
  /// `logit_bias`), so that every token is seen as it comes; empty: as the model likes.
  std::vector<TokenId> answer_tokens{};
};

/// How far a run is.
struct Progress {
  std::int64_t begun = 0;
  std::int64_t ended = 0;
  std::int64_t failed = 0;
  std::int64_t tokens = 0;  ///< Pieces of content that came.
  Duration elapsed{};
};

/// Measures how long prompts are for each model where they are words, then sends what `shots` says
/// and waits for all answers, or for SIGINT, which ends the run with what has been measured. `show`
/// is called a few times a second. kUnavailable, kFailedPrecondition where a model cannot be asked
/// at all.
Result<Results> run(const RunOptions& options,
                    ShotSource& shots,
                    const std::function<void(const Progress&)>& show);

}  // namespace heddle::bench
