#pragma once

#include <memory>

#include "api/answer_writer.h"
#include "gateway/http_exchange.h"
#include "gateway/live_requests.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// What was not done as asked, as a header of one line in ASCII; none where all was.
[[nodiscard]] HttpFields warning_headers(const std::vector<std::string>& warnings);

/// Lets the job run and its inbox hear when the client hangs up. `http` outlives `live`'s answer.
void watch_and_start(HttpExchange& http, LiveRequests& live);
/// Lets something happen. False when the client has gone.
Task<bool> wait_for_news(HttpExchange& http, LiveRequests& live);
/// Answers with the error of the job.
Task<void> fail(HttpExchange& http, LiveRequests& live);

/// Runs a job and answers the client: as a whole, or as a stream of events. Ends early, and cancels
/// what runs, when the client hangs up. `http` outlives the task.
Task<void> generate(HttpExchange& http,
                    std::shared_ptr<LiveRequests> live,
                    std::unique_ptr<api::AnswerWriter> writer);

/// The same for a job that is ready to start; tells the client what is wrong with its stop strings.
Task<void> run_job(std::shared_ptr<Context> context,
                   HttpExchange& http,
                   GenerationJob job,
                   std::unique_ptr<api::AnswerWriter> writer);

}  // namespace heddle::gateway
