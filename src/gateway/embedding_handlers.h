#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/embeddings.h"
#include "api/responses.h"
#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Gives vectors, one for each text in order, the form that an endpoint promises.
using EmbeddingWriter = std::function<std::string(const std::vector<std::vector<float>>& embeddings,
                                                  const api::Usage& usage)>;

/// Has the texts of a request embedded, and answers.
Task<void> embed_and_answer(std::shared_ptr<Context> context,
                            HttpExchange& http,
                            api::EmbeddingRequest request,
                            EmbeddingWriter write);

}  // namespace heddle::gateway
