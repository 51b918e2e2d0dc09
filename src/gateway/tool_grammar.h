#pragma once

#include "api/tools.h"
#include "base/result.h"
#include "spec/sampling.h"
#include "text/answer_format.h"
#include "text/tokenizer.h"

namespace heddle::gateway {

/// The grammar of an answer that consists of calls of `use.list`, or of `use.named` alone: one, or
/// any number where calls may be parallel, spelled as the model does. `use` is forced.
/// kFailedPrecondition for a model that is not known to call tools.
[[nodiscard]] Result<spec::Grammar> tool_grammar(text::ToolFormat format,
                                                 const api::ToolUse& use,
                                                 const text::Tokenizer& tokenizer);

}  // namespace heddle::gateway
