#include "external/kv_control.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

#include <unistd.h>

namespace heddle::external {

using namespace std::chrono_literals;

namespace {

constexpr const char* kNameVariable = "KVCACHED_IPC_NAME";
constexpr Duration kLockedMost = 2s;
constexpr Duration kNudgePatience = 10s;

}  // namespace

std::shared_ptr<KvControl> KvControl::of(config::EngineConfig& config,
                                         const std::string& model,
                                         const std::string& directory) {
  if (!config.elastic_kv) {
    return nullptr;
  }
  const auto named = std::ranges::find(
      config.env, kNameVariable, [](const auto& entry) { return std::string_view(entry.first); });
  const std::string name =
      named == config.env.end() ? segment_name(::getpid(), model) : named->second;
  if (named == config.env.end()) {
    config.env.emplace_back(kNameVariable, name);
  }
  KvSegments segments(directory, name);
  segments.remove();
  return std::make_shared<KvControl>(config, model, std::move(segments));
}

KvControl::KvControl(const config::EngineConfig& config, std::string model, KvSegments segments)
    : segments_(std::move(segments)),
      probe_(config.upstream,
             config.kind,
             config.served_name.empty() ? std::move(model) : config.served_name),
      least_(config.kv_least) {}

KvControl::~KvControl() {
  segments_.remove();
}

Result<void> KvControl::begin() {
  Result<void> told = segments_.set_limit(least_);
  if (!told && told.error().code == Code::kUnavailable) {
    untold_ = least_;
    return {};
  }
  if (!told && told.error().code == Code::kNotFound) {
    return Error{Code::kFailedPrecondition,
                 "kv: elastic takes kvcached in the engine's environment (pip install kvcached), "
                 "and " +
                     told.error().message};
  }
  return told;
}

void KvControl::limit(std::uint64_t bytes) {
  untold_ = bytes;
  if (const Result<void> told = segments_.set_limit(bytes); told) {
    untold_.reset();
  }
}

Result<KvUse> KvControl::look(Instant now) {
  if (untold_) {
    limit(*untold_);
  }
  Result<KvUse> use = segments_.read();
  if (use || use.error().code != Code::kUnavailable) {
    locked_since_.reset();
    return use;
  }
  locked_since_ = locked_since_.value_or(now);
  if (now - *locked_since_ < kLockedMost) {
    return use;
  }
  return Error{Code::kDeadlineExceeded, use.error().message + " for too long"};
}

boost::asio::awaitable<void> KvControl::nudge() {
  co_await probe_.touch(kNudgePatience);
}

}  // namespace heddle::external
