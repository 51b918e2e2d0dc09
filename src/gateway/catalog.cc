#include "gateway/catalog.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/background.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

/// A text part that is being read, and those who wait for it.
struct Catalog::Reading {
  explicit Reading(asio::io_context& loop) : ended(loop, asio::steady_timer::time_point::max()) {}

  asio::steady_timer ended;  ///< Cancelled at the end, which wakes everybody.
  std::optional<TextResult> result{};
};

Catalog::Catalog(asio::io_context& loop, TextPool& pool, Opener opener)
    : loop_(loop), pool_(pool), opener_(std::move(opener)) {}

void Catalog::assign(const std::vector<config::ModelConfig>& models,
                     const std::vector<core::ModelStatus>& known) {
  std::vector<std::shared_ptr<CatalogModel>> next;
  for (const config::ModelConfig& config : models) {
    const auto status = std::find_if(known.begin(), known.end(), [&](const core::ModelStatus& s) {
      return s.name == config.id;
    });
    if (status == known.end()) {
      continue;
    }
    const std::shared_ptr<CatalogModel> before = find(status->id);
    const bool same = before && before->config.path == config.path &&
                      before->config.context == config.context && before->config.id == config.id;
    if (same) {
      before->config = config;
      next.push_back(before);
    } else {
      next.push_back(
          std::make_shared<CatalogModel>(CatalogModel{.id = status->id, .config = config}));
    }
    add_adapters(std::shared_ptr(next.back()), next);
  }
  models_ = std::move(next);
  has_engines_ = std::any_of(models_.begin(), models_.end(), [](const auto& model) {
    return model->config.engine.has_value();
  });
  by_name_.clear();
  for (const std::shared_ptr<CatalogModel>& model : models_) {
    by_name_[model->config.id] = model;
    for (const std::string& alias : model->config.aliases) {
      by_name_.emplace(alias, model);
    }
  }
}

/// Those that were there keep their queues.
void Catalog::add_adapters(const std::shared_ptr<CatalogModel>& base,
                           std::vector<std::shared_ptr<CatalogModel>>& next) const {
  for (const config::ModelConfig& config : base->config.adapters) {
    const std::shared_ptr<CatalogModel> before = find(config.id);
    if (before && before->base == base) {
      before->config = config;
      next.push_back(before);
    } else {
      next.push_back(std::make_shared<CatalogModel>(
          CatalogModel{.id = base->id, .config = config, .base = base}));
    }
  }
}

std::shared_ptr<CatalogModel> Catalog::find(std::string_view name) const {
  constexpr std::string_view kLatest = ":latest";
  auto found = by_name_.find(name);
  if (found == by_name_.end() && name.ends_with(kLatest)) {
    found = by_name_.find(name.substr(0, name.size() - kLatest.size()));
  }
  return found == by_name_.end() ? nullptr : found->second;
}

std::shared_ptr<CatalogModel> Catalog::find(ModelId id) const {
  const auto found = std::find_if(models_.begin(), models_.end(), [id](const auto& model) {
    return model->id == id && !model->base;
  });
  return found == models_.end() ? nullptr : *found;
}

std::string Catalog::listed_names() const {
  std::string names;
  for (const std::shared_ptr<CatalogModel>& model : models_) {
    if (!model->config.unlisted) {
      names += (names.empty() ? "" : ", ") + model->config.id;
    }
  }
  return names;
}

std::int32_t priority_of(const CatalogModel& model, std::int32_t asked, std::int32_t least) {
  const std::int32_t own = std::max(asked, least);
  if (core::is_background(own)) {
    return own;
  }
  const std::int64_t both = std::int64_t{own} + model.config.priority;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(both, INT32_MIN, core::kBackgroundPriority - 1));
}

std::int64_t context_of_command(const std::vector<std::string>& command) {
  constexpr auto kOptions = std::to_array<std::string_view>(
      {"--max-model-len", "--max_model_len", "--context-length", "--ctx-size", "-c"});
  std::int64_t context = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    const std::string_view name = word.substr(0, word.find('='));
    if (std::find(kOptions.begin(), kOptions.end(), name) == kOptions.end()) {
      continue;
    }
    const std::string_view value = name.size() < word.size() ? word.substr(name.size() + 1)
                                   : i + 1 < command.size()  ? std::string_view(command[i + 1])
                                                             : "";
    std::int64_t number = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
    // vLLM also takes 8k for 8,000 and 8K for 8,192.
    const std::string_view unit(end, static_cast<std::size_t>(value.data() + value.size() - end));
    const std::int64_t factor = unit.empty() ? 1 : unit == "k" ? 1000 : unit == "K" ? 1024 : 0;
    if (failure == std::errc() && number > 0 && number < (std::int64_t{1} << 40U)) {
      context = number * factor;  // The last one holds.
    }
  }
  return context;
}

Task<void> Catalog::learn_context(std::shared_ptr<CatalogModel> model,
                                  std::function<std::int64_t(const config::ModelConfig&)> look) {
  if (model->config.engine) {
    model->declared_context = context_of_command(model->config.engine->command);
    co_return;
  }
  if (model->context() > 0 || !look || model->base) {
    co_return;
  }
  std::int64_t context = 0;
  std::function<void()> work = [&context, &look, config = model->config] {
    context = look(config);
  };
  co_await pool_.run(std::move(work));
  model->declared_context = context;
}

Task<Catalog::TextResult> Catalog::text(std::shared_ptr<CatalogModel> model) {
  if (model->base) {
    model = model->base;
  }
  if (model->text) {
    co_return model->text;
  }
  const auto found = readings_.find(model.get());
  if (found != readings_.end()) {
    const std::shared_ptr<Reading> reading = found->second;
    while (!reading->result) {
      co_await reading->ended.async_wait(kAwait);
    }
    co_return *reading->result;
  }
  const auto reading = std::make_shared<Reading>(loop_);
  readings_[model.get()] = reading;
  std::optional<TextResult> result;
  std::function<void()> open = [this, &result, config = model->config] {
    result = opener_(config);
  };
  co_await pool_.run(std::move(open));
  if (*result) {
    model->text = result->value();
  }
  reading->result = *result;
  reading->ended.cancel();
  readings_.erase(model.get());
  co_return *result;
}

}  // namespace heddle::gateway
