#include "core/manager/load_attempts.h"

#include <string>

#include "core/manager/models.h"
#include "policy/backoff.h"

namespace heddle::core::manager {
namespace {

/// So many workers that were killed under loads of a model count as one load that failed.
constexpr std::int32_t kKillsPerFailure = 3;

/// Errors that trying again does not cure.
bool permanent(Code code) {
  return code == Code::kInvalidArgument || code == Code::kNotFound || code == Code::kCorrupt;
}

}  // namespace

void LoadAttempts::failed(ModelId id, const Error& reason) {
  if (!state_.models.contains(id)) {
    return;
  }
  const ModelId all = whole(state_, id);
  ModelState& model = state_.models.at(all);
  const ManagerOptions& options = state_.options;
  model.failure = reason;
  ++model.failures;
  if (model.failures < options.load_attempts && !permanent(reason.code)) {
    model.retry_at =
        state_.now +
        policy::backoff(model.failures, options.load_retry_first, options.load_cooldown);
    return;
  }
  const std::string attempts =
      model.failures == 1 ? "" : " after " + std::to_string(model.failures) + " attempts";
  model.failures = 0;
  model.failed_until = model.retry_at = state_.now + options.load_cooldown;
  give_up(
      all,
      {Code::kUnavailable,
       "model '" + model.config.name + "' could not be loaded" + attempts + ": " + reason.message});
}

void LoadAttempts::succeeded(ModelId id) {
  ModelState& model = state_.models.at(id);
  model.failures = model.kills = 0;
  model.failure.reset();
}

bool LoadAttempts::killed(ModelId model) {
  return ++state_.models.at(whole(state_, model)).kills % kKillsPerFailure == 0;
}

void LoadAttempts::forgive(ModelId id) {
  ModelState& model = state_.models.at(id);
  model.failed_until = model.retry_at = state_.now;
}

void LoadAttempts::give_up(ModelId model, const Error& error, std::int64_t longer_than) {
  queues_.fail_waiting(model, error, longer_than);
  if (longer_than == 0) {
    tickets_.fail_loads(model, error);
  }
}

}  // namespace heddle::core::manager
