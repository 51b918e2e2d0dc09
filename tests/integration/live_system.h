#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/host_model.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/test_places.h"
#include "config/config.h"
#include "core/serving.h"
#include "solo/system.h"

namespace heddle::tests {

/// What came of one request.
class Answer final : public core::RequestSink {
 public:
  explicit Answer(std::shared_ptr<core::RequestRecord> record) : record_(std::move(record)) {}

  void on_tokens(const std::vector<core::TokenEvent>& tokens) override {
    HEDDLE_CHECK(!over());
    for (const core::TokenEvent& token : tokens) {
      std::vector<TokenId>& heard = heard_[token.choice];
      HEDDLE_CHECK(token.position == std::ssize(heard));  // In order, none twice.
      heard.push_back(token.token);
      cached_tokens_ += token.details.cached_tokens;
    }
    if (on_news) {
      on_news();
    }
  }
  void on_loading(std::uint64_t /*loaded*/, std::uint64_t /*total*/) override { ++loadings_; }
  void on_done() override {
    HEDDLE_CHECK(!over());
    done_ = true;
  }
  void on_error(const Error& error) override {
    HEDDLE_CHECK(!over());
    error_ = error;
  }

  [[nodiscard]] bool over() const { return done_ || error_.has_value(); }
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] int loadings() const { return loadings_; }
  /// Of the prompt, what a cached prefix spared.
  [[nodiscard]] std::int64_t cached_tokens() const { return cached_tokens_; }
  /// The tokens of a choice, as heard.
  [[nodiscard]] std::vector<TokenId> tokens(std::uint32_t choice = 0) const {
    const auto found = heard_.find(choice);
    return found == heard_.end() ? std::vector<TokenId>() : found->second;
  }
  [[nodiscard]] const core::RequestRecord& record() const { return *record_; }

  std::function<void()> on_news{};  ///< Called with every batch of tokens.

 private:
  std::shared_ptr<core::RequestRecord> record_;
  std::map<std::uint32_t, std::vector<TokenId>> heard_{};
  bool done_ = false;
  std::optional<Error> error_{};
  int loadings_ = 0;
  std::int64_t cached_tokens_ = 0;
};

/// A whole system behind a gateway, with real worker processes, on a loop that the test turns.
class LiveSystem {
 public:
  explicit LiveSystem(config::Config config) : config_(std::move(config)) {
    auto system = solo::System::create(loop_.get_executor(), config_, metrics_);
    if (system) {
      system_ = std::move(*system);
    } else {
      failure_ = system.error();
    }
  }

  [[nodiscard]] solo::System& system() { return *system_; }
  /// Why there is no system.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  [[nodiscard]] config::Config& config() { return config_; }

  [[nodiscard]] core::ModelStatus model(const std::string& name) {
    for (core::ModelStatus& status : system_->models()) {
      if (status.name == name) {
        return status;
      }
    }
    HEDDLE_CHECK(false);
  }

  /// Begins a greedy answer.
  std::shared_ptr<Answer> ask(const std::string& model_name,
                              std::vector<TokenId> prompt,
                              std::int64_t max_tokens) {
    spec::SamplingParams params{.temperature = 0.0F};
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    return ask(model_name, std::move(prompt), {params});
  }

  std::shared_ptr<Answer> ask(const std::string& model_name,
                              std::vector<TokenId> prompt,
                              std::vector<spec::SamplingParams> choices) {
    auto record = std::make_shared<core::RequestRecord>();
    record->id = RequestId(++requests_);
    record->model = model(model_name).id;
    record->prompt = std::move(prompt);
    for (std::uint32_t i = 0; i < choices.size(); ++i) {
      choices[i].choice = i;
    }
    record->choices = std::move(choices);
    auto answer = std::make_shared<Answer>(record);
    system_->start(record, answer);
    return answer;
  }

  /// Turns the loop until `wanted` is true; false if a minute passes first.
  [[nodiscard]] bool run_until(const std::function<bool()>& wanted) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!wanted()) {
      if (std::chrono::steady_clock::now() > give_up) {
        return false;
      }
      loop_.run_one_for(std::chrono::seconds(1));
    }
    return true;
  }
  [[nodiscard]] bool finish(const Answer& answer) {
    return run_until([&] { return answer.over(); });
  }
  [[nodiscard]] bool workers_up() {
    return run_until([&] {
      for (const core::DeviceStatus& device : system_->devices()) {
        if (!device.up) {
          return false;
        }
      }
      return true;
    });
  }

  boost::asio::io_context& loop() { return loop_; }
  [[nodiscard]] Metrics& metrics() { return metrics_; }

 private:
  config::Config config_;
  boost::asio::io_context loop_{1};
  Metrics metrics_{};
  std::unique_ptr<solo::System> system_{};
  std::optional<Error> failure_{};
  std::uint64_t requests_ = 0;
};

inline constexpr std::uint64_t kPageBytes = std::uint64_t{16} << 10U;

/// A configuration of devices cpu0, cpu1, ... of `device_bytes` each, with small pages.
[[nodiscard]] inline config::Config small_host(std::uint64_t device_bytes, int devices = 1) {
  config::Config config;
  config.directory = places::kSources;
  config.host.memory = std::uint64_t{4} << 20U;
  config.log_level = log::Level::kWarning;
  for (int i = 0; i < devices; ++i) {
    config.devices.push_back(
        {.name = "cpu" + std::to_string(i), .memory = device_bytes, .page = kPageBytes});
  }
  return config;
}

/// Memory for the hungriest of the models alone, with `spare_pages` more.
[[nodiscard]] inline std::uint64_t memory_for_one(const config::Config& config,
                                                  std::int64_t spare_pages) {
  std::int64_t most = 0;
  for (const config::ModelConfig& model : config.models) {
    const auto host = agent::open_host_model(model.path,
                                             config.directory,
                                             model.dtype,
                                             {.page_bytes = kPageBytes, .max_batch_tokens = 16});
    HEDDLE_CHECK(host.has_value());
    most = std::max(most, policy::pages_to_load(host->footprint));
  }
  return static_cast<std::uint64_t>(most + spare_pages) * kPageBytes;
}

/// Adds a golden model, in float32.
inline void add_golden(config::Config& config, const std::string& name) {
  config::ModelConfig model;
  model.id = name;
  model.path = "tests/golden/" + name;
  model.dtype = spec::DType::kF32;
  model.min_residence = Duration{};
  config.models.push_back(model);
}

}  // namespace heddle::tests
