#include <algorithm>
#include <utility>

#include "engine/kv_share.h"
#include "worker/device_executor.h"

/// What DeviceExecutor does with KV that other workers have, and with what they ask for.
namespace heddle::worker {

/// Each source is asked for its layers of the same positions.
void DeviceExecutor::execute(const core::FetchKv& command, std::vector<core::WorkerEvent>& events) {
  const std::optional<engine::KvWanted> wanted =
      engine::KvShares(*engine_).wanted(command.sequence);
  if (!wanted || command.from.empty()) {
    tell_fetched(command.sequence,
                 {.computed = engine::KvShares(*engine_).end(command.sequence), .done = true},
                 events);
    return;
  }
  kv_asks_[command.sequence] = {.first = kv_asked_ + 1, .open = std::ssize(command.from)};
  for (const core::KvSource& source : command.from) {
    handlers_.on_kv_ask({.ask = ++kv_asked_,
                         .from = source,
                         .cache_salt = wanted->cache_salt,
                         .tokens = wanted->tokens,
                         .begin = wanted->begin,
                         .end = wanted->end});
  }
}

void DeviceExecutor::execute(const core::EndFetch& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  kv_asks_.erase(command.sequence);
  engine::KvShares(*engine_).end(command.sequence);
  kv_changed_ = true;
}

/// Of the latest asks of a sequence; what is late is for nobody.
Result<void> DeviceExecutor::hear_kv(rpc::KvGiven given, std::vector<core::WorkerEvent>& events) {
  const auto found = std::ranges::find_if(kv_asks_, [&](const auto& entry) {
    const auto& [sequence, asks] = entry;
    return given.ask >= asks.first &&
           given.ask < asks.first + static_cast<std::uint64_t>(asks.open + std::ssize(asks.parts));
  });
  if (found == kv_asks_.end()) {
    return {};
  }
  auto& [sequence, asks] = *found;
  asks.parts.push_back({.prefix = given.prefix,
                        .begin = given.begin,
                        .end = given.end,
                        .first_layer = given.first_layer,
                        .from = std::move(given.from),
                        .bytes = std::move(given.bytes)});
  if (--asks.open > 0) {
    return {};
  }
  const core::SequenceId id = sequence;
  std::vector<engine::KvPart> parts = std::move(asks.parts);
  kv_asks_.erase(found);
  const Result<engine::KvHave> have = engine::KvShares(*engine_).put(id, std::move(parts));
  if (!have) {
    return have.error();
  }
  tell_fetched(id, *have, events);
  return {};
}

void DeviceExecutor::tell_fetched(core::SequenceId sequence,
                                  const engine::KvHave& have,
                                  std::vector<core::WorkerEvent>& events) {
  kv_changed_ = false;  // This tells.
  events.push_back(core::KvFetched{
      .sequence = sequence, .computed = have.computed, .done = have.done, .counted = counted()});
}

Result<rpc::KvGiven> DeviceExecutor::give_kv(const rpc::KvAsk& ask) {
  Result<engine::KvPart> part = engine::KvShares(*engine_).give({.model = ask.from.model,
                                                                 .cache_salt = ask.cache_salt,
                                                                 .tokens = ask.tokens,
                                                                 .begin = ask.begin,
                                                                 .end = ask.end});
  if (!part) {
    return part.error();
  }
  return rpc::KvGiven{.ask = ask.ask,
                      .prefix = part->prefix,
                      .begin = part->begin,
                      .end = part->end,
                      .first_layer = part->first_layer,
                      .from = std::move(part->from),
                      .bytes = std::move(part->bytes)};
}

}  // namespace heddle::worker
