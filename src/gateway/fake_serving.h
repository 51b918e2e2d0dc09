#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "core/serving.h"

namespace heddle::gateway {

/// A system behind the gateway that does what a test says. Its tokens are bytes, and kEos ends a
/// turn. Loop thread, but for wait().
class FakeServing final : public core::Serving {
 public:
  static constexpr TokenId kEos = 256;

  explicit FakeServing(boost::asio::io_context& loop) : loop_(loop) {
    names = {"tiny", "org/name:8b"};
  }

  std::vector<std::string> names{};      ///< Of the models; ids count from 1.
  std::optional<std::string> reply{""};  ///< Each answer, a token a step; nothing: it waits.
  bool endless = false;                  ///< Answers never end.
  std::int64_t cached_tokens = 0;        ///< Told with first tokens; one more for each choice.
  std::optional<Error> failure{};        ///< Instead of an answer.
  std::optional<Error> load_failure{};
  std::map<ModelId, core::Residency> residency{};
  std::vector<DeviceId> peers{};  ///< Of all models that are somewhere.
  /// Where the external engines listen; nothing: they do not run yet.
  std::optional<HttpAddress> engine{};
  std::vector<core::EngineStatus> engine_statuses{};
  std::vector<core::NotedDecision> noted{};
  std::vector<core::HostEntry> host_entries{};
  std::optional<Error> leave_failure{};
  std::optional<Error> apply_failure{};
  std::vector<std::string> wrong{};
  std::int64_t pages = 100;  ///< Of the device.
  int retries_max = 100;     ///< Then requests fail.

  /// What happened; read within look().
  std::vector<std::shared_ptr<core::RequestRecord>> started{};
  std::set<ModelId> unloaded{};
  std::set<RequestId> cancelled{};
  std::vector<std::pair<RequestId, std::uint32_t>> finished_choices{};
  std::vector<std::shared_ptr<core::ExternalRequest>> forwarded{};
  std::set<RequestId> finished_external{};
  int retries = 0;
  int cuts = 0;  ///< Of these.
  std::set<ModelId> loaded{};
  std::set<HostId> left{};  ///< Those that are to go.
  std::vector<std::pair<std::string, bool>>
      applied{};  ///< Configurations, and whether it was a dry run.

  /// Blocks until `condition`, which looks at this, holds; false when it does not within ten
  /// seconds. Any thread.
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }

  void start(std::shared_ptr<core::RequestRecord> record,
             std::shared_ptr<core::RequestSink> sink) override {
    change([&] { started.push_back(record); });
    sinks_[record->id] = sink;
    boost::asio::post(loop_, [this, id = record->id] { step(id, 0); });
  }
  void finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) override {
    change([&] { finished_choices.emplace_back(request, choice); });
    find(request)->finished[choice] = reason;
  }
  void cancel(RequestId request) override {
    sinks_.erase(request);
    external_sinks_.erase(request);
    change([&] { cancelled.insert(request); });
  }
  void start_external(std::shared_ptr<core::ExternalRequest> request,
                      std::shared_ptr<core::ExternalSink> sink) override {
    external_sinks_[request->id] = std::move(sink);
    boost::asio::post(loop_, [this, id = request->id] { tell_ready(id); });
    change([&] { forwarded.push_back(std::move(request)); });
  }
  void finish_external(RequestId request) override {
    external_sinks_.erase(request);
    change([&] { finished_external.insert(request); });
  }
  void retry_external(RequestId request, bool cut) override {
    change([&] {
      ++retries;
      cuts += cut ? 1 : 0;
    });
    boost::asio::post(loop_, [this, request] {
      if (retries <= retries_max) {
        tell_ready(request);
      } else if (const auto sink = external_sinks_.find(request); sink != external_sinks_.end()) {
        std::exchange(sink->second, nullptr)
            ->on_error({.code = Code::kUnavailable, .message = "the engine does not run"});
        external_sinks_.erase(request);
      }
    });
  }
  void load(ModelId model, std::function<void(Result<void>)> done) override {
    if (load_failure) {
      done(*load_failure);
      return;
    }
    residency[model] = core::Residency::kServing;
    change([&] { loaded.insert(model); });
    done({});
  }
  void unload(ModelId model,
              core::EvictionReason /*why*/,
              std::function<void(Result<void>)> done) override {
    change([&] { unloaded.insert(model); });
    residency[model] = core::Residency::kAbsent;
    boost::asio::post(loop_, [done] { done({}); });
  }

  [[nodiscard]] std::vector<core::HostEntry> hosts() const override { return host_entries; }
  void apply(std::string configuration,
             bool dry_run,
             std::function<void(Result<void>)> done) override {
    change([&] { applied.emplace_back(std::move(configuration), dry_run); });
    boost::asio::post(loop_, [this, done] {
      done(apply_failure ? Result<void>(*apply_failure) : Result<void>());
    });
  }
  void leave(HostId host, bool leaving, std::function<void(Result<void>)> done) override {
    if (!leave_failure) {
      change([&] { leaving ? (void)left.insert(host) : (void)left.erase(host); });
    }
    done(leave_failure ? Result<void>(*leave_failure) : Result<void>());
  }

  [[nodiscard]] std::vector<core::ModelStatus> models() const override {
    std::vector<core::ModelStatus> all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      core::ModelStatus status{.id = ModelId(i + 1), .name = names[i], .image_bytes = 1000};
      const auto found = residency.find(status.id);
      status.residency = found == residency.end() ? core::Residency::kAbsent : found->second;
      if (status.residency != core::Residency::kAbsent) {
        status.device = DeviceId(0);
        status.peers = peers;
        status.loaded_bytes = status.residency == core::Residency::kLoading ? 250 : 1000;
        status.loads = {2, 1};
        status.evictions = {0, 0, 1, 0, 0, 0};
        status.recalled = 6;
      }
      all.push_back(std::move(status));
    }
    return all;
  }
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override {
    core::DeviceStatus device{.id = DeviceId(0), .name = "cpu0", .up = true, .page_bytes = 65536};
    device.usage.total = pages;
    device.usage.free = 60;
    device.usage.by_kind[static_cast<std::size_t>(ledger::LeaseKind::kKvOwn)] = {.reserved = 40,
                                                                                 .held = 20};
    device.residents = {{.model = "tiny",
                         .residency = core::Residency::kServing,
                         .weights_pages = 12,
                         .kv_pages = 20,
                         .requests_running = 2}};
    device.prefixes = {
        {.model = ModelId(1), .queried_tokens = 50, .hit_tokens = 30, .host_tokens = 20},
        {.model = ModelId(77), .queried_tokens = 1}};
    device.dropped_pages = {4, 3, 2, 1};
    device.kv_store = {.pages = 8,
                       .held = 5,
                       .kept_pages = 9,
                       .kept_blocks = 6,
                       .returned_pages = 3,
                       .displaced_pages = 2,
                       .declined_tokens = 16};
    device.steps = 70;
    device.late_steps = 7;
    device.slow_steps = 3;
    device.overrun_steps = 2;
    device.copied_bytes = 500;
    device.peer_load_bytes = 200;
    device.peer_assist_bytes = 90;
    device.kept_bytes = 30;
    device.trouble = wrong.empty() ? "" : wrong.front();
    device.suspected = 6;
    device.hung = {1, 2, 3, 4};
    device.others_bytes = 1000;
    return {device};
  }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override { return engine_statuses; }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override { return noted; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return wrong; }
  [[nodiscard]] ledger::PoolUsage host_usage() const override { return {.total = 50, .free = 50}; }

  /// Sends tokens of one choice. Loop thread.
  void emit(RequestId request, std::uint32_t choice, const std::vector<TokenId>& tokens) {
    const auto sink = sinks_.find(request);
    if (sink == sinks_.end()) {
      return;
    }
    const auto record = find(request);
    std::vector<core::TokenEvent> events;
    for (const TokenId token : tokens) {
      core::TokenEvent event{.request = request, .choice = choice, .token = token};
      event.position = static_cast<std::int64_t>(record->generated[choice].size());
      event.details.cached_tokens = event.position == 0 ? cached_tokens + choice : 0;
      record->generated[choice].push_back(token);
      if (record->choices[choice].pooling != spec::Pooling::kNone) {
        event.details.embedding = {3, 4, static_cast<float>(record->prompt.size())};
      }
      const auto length = static_cast<std::int64_t>(record->generated[choice].size());
      event.finish = token == kEos                                  ? spec::FinishReason::kStop
                     : length >= record->choices[choice].max_tokens ? spec::FinishReason::kLength
                                                                    : spec::FinishReason::kNone;
      record->finished[choice] = event.finish;
      if (record->choices[choice].prompt_logprobs >= 0 && event.position == 0) {
        for (std::size_t i = 1; i < record->prompt.size(); ++i) {
          event.details.prompt.push_back({{{record->prompt[i], -0.25F}, {'z', -0.125F}}});
        }
      }
      if (const std::int32_t top = record->choices[choice].logprobs; top >= 0) {
        event.details.logprobs = {{token, -0.5F}};
        for (std::int32_t i = 0; i < top; ++i) {
          event.details.logprobs.push_back({'a' + i, -1.0F - static_cast<float>(i)});
        }
      }
      events.push_back(event);
      if (event.finish != spec::FinishReason::kNone) {
        break;
      }
    }
    sink->second->on_tokens(events);
  }
  [[nodiscard]] std::shared_ptr<core::RequestSink> sink(RequestId request) {
    return sinks_.at(request);
  }
  /// Of the request that was forwarded last. Loop thread.
  [[nodiscard]] std::shared_ptr<core::ExternalSink> external_sink() {
    return external_sinks_.at(forwarded.back()->id);
  }
  /// Tells those who wait that the engine runs. Loop thread.
  void tell_all_ready() {
    for (const auto& request : forwarded) {
      tell_ready(request->id);
    }
  }

 private:
  template <class Change>
  void change(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  std::shared_ptr<core::RequestRecord> find(RequestId id) {
    for (const auto& record : started) {
      if (record->id == id) {
        return record;
      }
    }
    return nullptr;
  }

  /// The next token of each choice that has not ended.
  void step(RequestId id, std::size_t position) {
    const auto sink = sinks_.find(id);
    if (sink == sinks_.end()) {
      return;
    }
    if (failure) {
      const std::shared_ptr<core::RequestSink> told = sink->second;
      sinks_.erase(sink);
      told->on_error(*failure);
      return;
    }
    if (!reply && !endless) {
      return;
    }
    const std::shared_ptr<core::RequestRecord> record = find(id);
    record->device = DeviceId(0);
    bool open = false;
    for (std::uint32_t choice = 0; choice < record->choices.size(); ++choice) {
      if (record->finished[choice] == spec::FinishReason::kNone) {
        const bool more = endless || position < reply->size();
        const TokenId token = !more     ? kEos
                              : endless ? 'a'
                                        : static_cast<unsigned char>((*reply)[position]);
        emit(id, choice, {token});
        open = open || record->finished[choice] == spec::FinishReason::kNone;
      }
    }
    if (open) {
      boost::asio::post(loop_, [this, id, position] { step(id, position + 1); });
    } else if (const auto last = sinks_.find(id); last != sinks_.end()) {
      const std::shared_ptr<core::RequestSink> told = last->second;
      sinks_.erase(last);
      told->on_done();
    }
  }

  void tell_ready(RequestId id) {
    const auto sink = external_sinks_.find(id);
    if (sink != external_sinks_.end() && engine) {
      for (const auto& request : forwarded) {
        if (request->id == id) {
          request->device = DeviceId(0);
          request->times.note_dispatch(steady_now());
        }
      }
      sink->second->on_ready({.address = *engine});
    }
  }

  boost::asio::io_context& loop_;
  std::map<RequestId, std::shared_ptr<core::ExternalSink>> external_sinks_{};
  std::map<RequestId, std::shared_ptr<core::RequestSink>> sinks_{};
  std::mutex mutex_{};
  std::condition_variable changed_{};
};

}  // namespace heddle::gateway
