#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/ids.h"
#include "config/config.h"
#include "core/serving.h"
#include "gateway/model_queue.h"
#include "gateway/model_text.h"
#include "gateway/task.h"
#include "gateway/text_pool.h"

namespace heddle::gateway {

/// One configured model and, once somebody asked for it, its text part.
struct CatalogModel {
  ModelId id{};
  config::ModelConfig config{};
  ModelQueue queue{};  ///< Requests that were admitted and have not ended.
  /// Instead of the configuration's ttl, until it is unloaded; Duration::max() for ever.
  std::optional<Duration> keep_alive{};
  std::shared_ptr<const ModelText> text{};  ///< Null until it was asked for.
  /// Of a LoRA adapter: its model, which has the id and the text part of both.
  std::shared_ptr<CatalogModel> base{};
  /// Before that: its context length as its files or its engine's command say it [tokens]; 0: not
  /// known.
  std::int64_t declared_context = 0;

  /// Prompt and answer together [tokens]; 0: not known.
  [[nodiscard]] std::int64_t context() const {
    return base ? base->context() : text ? text->context : declared_context;
  }
  /// The adapter that requests for it go through, as the system behind calls it; empty: none.
  [[nodiscard]] std::string adapter() const { return base ? config.id : std::string(); }
};

/// What requests for a model run at, of which lower ones go first: what they ask for, but not more
/// urgent than `least`, and the model's own on top. Those in the background stay there.
[[nodiscard]] std::int32_t priority_of(const CatalogModel& model,
                                       std::int32_t asked,
                                       std::int32_t least);

/// The context length that the command of an engine sets [tokens]: vLLM's --max-model-len, SGLang's
/// --context-length, llama.cpp's --ctx-size or -c. 0 where it sets none.
[[nodiscard]] std::int64_t context_of_command(const std::vector<std::string>& command);

/// The models by name and alias. Requests hold a model by shared_ptr, so that a reload leaves those
/// that run alone. Loop thread.
class Catalog {
 public:
  /// Reads the text part of a model; called on a thread of the pool.
  using Opener =
      std::function<Result<std::shared_ptr<const ModelText>>(const config::ModelConfig& model)>;

  Catalog(boost::asio::io_context& loop, TextPool& pool, Opener opener);

  /// Takes over the models that are configured and known to the system behind. Those that have not
  /// changed keep their text.
  void assign(const std::vector<config::ModelConfig>& models,
              const std::vector<core::ModelStatus>& known);

  /// The model with this name or alias; null when there is none. A ":latest" that Ollama's clients
  /// put behind a name is not looked at, unless it belongs to one.
  [[nodiscard]] std::shared_ptr<CatalogModel> find(std::string_view name) const;
  /// Not an adapter of it.
  [[nodiscard]] std::shared_ptr<CatalogModel> find(ModelId id) const;
  /// In the order of the configuration, each before its adapters.
  [[nodiscard]] const std::vector<std::shared_ptr<CatalogModel>>& models() const { return models_; }
  /// Whether there are models that engines of others serve.
  [[nodiscard]] bool has_engines() const { return has_engines_; }
  /// Names of the models that are listed, for messages: "a, b".
  [[nodiscard]] std::string listed_names() const;

  /// The text part, read at the first call; calls meanwhile wait for the same reading. A failure
  /// is not kept: the next call tries again.
  Task<Result<std::shared_ptr<const ModelText>>> text(std::shared_ptr<CatalogModel> model);
  /// Tells a model that has no text yet how long its context is.
  /// @param look  Asked on a thread of the pool, for models of ours; 0 for what it does not know.
  Task<void> learn_context(std::shared_ptr<CatalogModel> model,
                           std::function<std::int64_t(const config::ModelConfig&)> look);

 private:
  using TextResult = Result<std::shared_ptr<const ModelText>>;
  struct Reading;

  void add_adapters(const std::shared_ptr<CatalogModel>& base,
                    std::vector<std::shared_ptr<CatalogModel>>& next) const;

  boost::asio::io_context& loop_;
  TextPool& pool_;
  Opener opener_;
  std::vector<std::shared_ptr<CatalogModel>> models_{};
  std::map<std::string, std::shared_ptr<CatalogModel>, std::less<>> by_name_{};
  bool has_engines_ = false;
  std::map<const CatalogModel*, std::shared_ptr<Reading>> readings_{};
};

}  // namespace heddle::gateway
