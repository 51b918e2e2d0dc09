#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/embeddings.h"
#include "api/responses.h"
#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/job_setup.h"
#include "gateway/live_requests.h"
#include "gateway/task.h"
#include "gateway/whole_texts.h"

namespace heddle::gateway {

/// Gives vectors, one for each text in order, the form that an endpoint promises.
using EmbeddingWriter = std::function<std::string(const std::vector<std::vector<float>>& embeddings,
                                                  const api::Usage& usage)>;

/// Has the texts of a request embedded, and answers.
Task<void> embed_and_answer(std::shared_ptr<Context> context,
                            HttpExchange& http,
                            api::EmbeddingRequest request,
                            EmbeddingWriter write);

/// A job for texts that stand for themselves, resolved, as many at once as the model's queue takes
/// now; `param` is what they came as. Or why it is not taken.
[[nodiscard]] std::optional<api::ApiError> resolve_pooled(Context& context,
                                                          const OpenedModel& opened,
                                                          const std::string& param,
                                                          GenerationJob& job);

/// Runs such a job and answers with what `write` makes of the model's own numbers.
Task<void> pool_and_answer(std::shared_ptr<Context> context,
                           HttpExchange& http,
                           GenerationJob job,
                           EmbeddingWriter write);

/// Has the text pool read texts as a whole.
Task<api::Parsed<std::vector<text::Tokenizer::Encoded>>> read_whole(
    Context& context,
    HttpExchange& http,
    const OpenedModel& opened,
    std::vector<WholeText> texts,
    WholeTextsReading::Bounds bounds);

}  // namespace heddle::gateway
