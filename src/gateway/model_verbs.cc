#include "gateway/model_verbs.h"

#include <functional>
#include <utility>

#include "gateway/answered.h"

namespace heddle::gateway {

Task<Result<void>> carry_out(Context& context, Verb verb, ModelId model) {
  if (context.serving == nullptr) {
    co_return Error{.code = Code::kUnavailable, .message = "the server is shutting down"};
  }
  std::function<void(std::function<void(Result<void>)>)> begin =
      [&context, verb, model](std::function<void(Result<void>)> done) {
        if (verb == Verb::kLoad) {
          context.serving->load(model, std::move(done));
        } else {
          context.serving->unload(model, core::EvictionReason::kOperator, std::move(done));
        }
      };
  co_return co_await answered(context.loop, std::move(begin));
}

}  // namespace heddle::gateway
