#pragma once

#include <string>

#include "api/error.h"
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

/// What to tell a client whose grammar the library refuses with `message`. Where tool_grammar() or
/// a parser has written the grammar, that names the field that it was made of and shows nothing of
/// it.
/// @param param  What the grammar came as.
[[nodiscard]] api::ApiError grammar_fault(const std::string& param,
                                          const spec::Grammar& grammar,
                                          const std::string& message);

}  // namespace heddle::gateway
