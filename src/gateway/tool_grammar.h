#pragma once

#include "api/tools.h"
#include "spec/sampling.h"
#include "text/answer_format.h"
#include "text/tokenizer.h"

namespace heddle::gateway {

/// Whether tool_grammar() takes it for `answer`.
[[nodiscard]] bool can_stand_beside_calls(const spec::Grammar& answer, text::ToolFormat format);

/// The grammar of an answer that consists of calls of `use.list`, or of `use.named` alone: one, or
/// any number where calls may be parallel, spelled as the model does; or instead, where `answer`
/// constrains, of what that allows. `format` is not kNone.
[[nodiscard]] spec::Grammar tool_grammar(text::ToolFormat format,
                                         const api::ToolUse& use,
                                         const text::Tokenizer& tokenizer,
                                         const spec::Grammar& answer = {});

}  // namespace heddle::gateway
