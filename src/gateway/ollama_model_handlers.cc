#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "api/error_text.h"
#include "api/ollama/ollama_listing.h"
#include "api/ollama/ollama_request.h"
#include "gateway/idle_models.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_work.h"
#include "spec/config_json.h"

#include <openssl/evp.h>

namespace heddle::gateway {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr Duration kPullLook = 500ms;  ///< Between two looks at how far a model is.

/// Stands for a model as it is configured: its name and where it lies. What is in its files takes
/// no part, as nobody here reads all of them for a listing.
std::string model_digest(const config::ModelConfig& model) {
  const std::string text = model.id + "\n" + model.path;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  HEDDLE_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) ==
               1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : std::span(digest).first(size)) {
    hex += kDigits[byte >> 4U];
    hex += kDigits[byte & 15U];
  }
  return hex;
}

/// "qwen3", of Qwen3ForCausalLM.
std::string family_of(const ModelText& text) {
  std::string name(spec::architecture_name(text.architecture));
  name.resize(std::min(name.size(), name.find("ForCausalLM")));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return name;
}

/// What is known without opening anything.
api::OllamaModelObject ollama_object(const Context& context,
                                     const CatalogModel& model,
                                     const core::ModelStatus& status) {
  api::OllamaModelObject object{.name = model.config.id,
                                .digest = model_digest(model.config),
                                .size = status.image_bytes,
                                .modified = context.started_s * 1'000'000'000};
  if (!model.config.engine) {
    object.format = model.config.path.ends_with(".gguf") ? "gguf" : "safetensors";
  }
  if (model.text) {
    object.family = family_of(*model.text);
    object.context = model.text->context;
    object.parameters = model.text->parameters;
  }
  return object;
}

/// When it goes if nobody asks it [nanoseconds since 1970]; the end of time for one that stays.
std::int64_t ollama_expiry(const Context& context,
                           const CatalogModel& model,
                           const core::ModelStatus& status) {
  const std::optional<Duration> limit = time_to_live(model);
  if (!limit) {
    return std::numeric_limits<std::int64_t>::max();
  }
  const Instant now = context.now();
  const bool busy = status.requests_running + status.requests_waiting > 0;
  const Instant since = busy ? now : status.last_used;
  return wall_clock_ms() * 1'000'000 + (since + *limit - now).count();
}

Task<void> ollama_tags(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  std::vector<api::OllamaModelObject> objects;
  for (const core::ModelStatus& status : context->serving->models()) {
    const std::shared_ptr<CatalogModel> model = context->catalog.find(status.id);
    if (model && !model->config.unlisted) {
      objects.push_back(ollama_object(*context, *model, status));
    }
  }
  co_await respond_json(http, api::ollama_tags_json(objects));
}

Task<void> ollama_running(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  std::set<DeviceId> gpus;
  for (const core::DeviceStatus& device : context->serving->devices()) {
    if (device.others_bytes) {
      gpus.insert(device.id);
    }
  }
  std::vector<api::OllamaModelObject> objects;
  for (const core::ModelStatus& status : context->serving->models()) {
    const std::shared_ptr<CatalogModel> model = context->catalog.find(status.id);
    if (!model || status.residency == core::Residency::kAbsent) {
      continue;
    }
    api::OllamaModelObject object = ollama_object(*context, *model, status);
    object.expires = ollama_expiry(*context, *model, status);
    object.size_vram = status.device && gpus.contains(*status.device) ? status.loaded_bytes : 0;
    objects.push_back(std::move(object));
  }
  co_await respond_json(http, api::ollama_running_json(objects));
}

core::ModelStatus status_of_model(const Context& context, ModelId id) {
  if (context.serving == nullptr) {
    return {};
  }
  for (core::ModelStatus& status : context.serving->models()) {
    if (status.id == id) {
      return std::move(status);
    }
  }
  return {};
}

void add_parameter(std::string& lines, std::string_view name, std::optional<double> value) {
  if (value) {
    std::string number = std::to_string(*value);
    number.erase(number.find_last_not_of('0') + 1);
    lines += std::string(name) + " " + number + (number.ends_with('.') ? "0" : "") + "\n";
  }
}

api::OllamaDetails ollama_details(const OpenedModel& opened) {
  const Abilities abilities = abilities_of(opened);
  api::OllamaDetails details{.capabilities = {"completion"},
                             .embedding = opened.text->hidden,
                             .layers = opened.text->layers,
                             .experts = opened.text->experts.count,
                             .experts_used = opened.text->experts.active};
  if (opened.text->encodes()) {
    details.capabilities.clear();
    if (!opened.text->encoder.scores) {
      details.capabilities.emplace_back("embedding");
    }
    return details;
  }
  if (abilities.calls) {
    details.capabilities.emplace_back("tools");
  }
  if (abilities.thinks) {
    details.capabilities.emplace_back("thinking");
  }
  if (opened.model->config.pooling != config::Pooling::kAuto ||
      opened.text->pooling == spec::Pooling::kMean) {
    details.capabilities.emplace_back("embedding");
  }
  for (const spec::SamplingNumber& number : spec::kSamplingNumbers) {
    if (number.suggested) {
      add_parameter(details.parameters, number.name, opened.text->defaults.numbers[number.field]);
    }
  }
  return details;
}

Task<void> ollama_show(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_ollama_model);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const std::string name = std::get<0>(parsed).model;
  const std::shared_ptr<CatalogModel> model = context->catalog.find(name);
  if (model && model->config.engine) {
    const core::ModelStatus status = status_of_model(*context, model->id);
    const api::OllamaDetails details{.capabilities = {"completion"}};
    co_await respond_json(http,
                          api::ollama_show_json(ollama_object(*context, *model, status), details));
    co_return;
  }
  OpenedModel opened = co_await open_model(*context, name, Purpose::kTokens);
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  const core::ModelStatus status = status_of_model(*context, opened.model->id);
  api::OllamaModelObject object = ollama_object(*context, *opened.model, status);
  object.family = family_of(*opened.text);
  object.context = opened.text->context;
  object.parameters = opened.text->parameters;
  co_await respond_json(http, api::ollama_show_json(object, ollama_details(opened)));
}

/// How far a model is that is being fetched or loaded.
std::string progress_line(const Context& context, ModelId id, const std::string& digest) {
  const core::ModelStatus status = status_of_model(context, id);
  if (status.fetch && status.fetch->active) {
    return api::ollama_status_line("pulling from " + status.fetch->from,
                                   digest,
                                   status.fetch->bytes,
                                   status.fetch->total_bytes);
  }
  return api::ollama_status_line(
      "loading", digest, std::min(status.loaded_bytes, status.image_bytes), status.image_bytes);
}

/// A load that is under way, and how it ended.
struct Pull {
  std::optional<Result<void>> done{};
};

std::shared_ptr<Pull> begin_pull(Context& context, ModelId model) {
  auto pull = std::make_shared<Pull>();
  if (context.serving == nullptr) {
    pull->done = Error{Code::kUnavailable, "the server is shutting down"};
    return pull;
  }
  context.serving->load(model, [pull](Result<void> done) { pull->done = std::move(done); });
  return pull;
}

/// The last line of a pull.
std::string last_line(const HttpRequest& request, const Result<void>& done) {
  return done ? api::ollama_status_line("success")
              : api::error_events(api::from_error(done.error()), request.path);
}

Task<void> stream_pull(std::shared_ptr<Context> context,
                       HttpExchange& http,
                       std::shared_ptr<CatalogModel> model) {
  const std::string digest = model_digest(model->config);
  std::shared_ptr<Pull> pull = begin_pull(*context, model->id);
  std::string line = api::ollama_status_line("pulling manifest");
  Result<void> sent = co_await http.begin_stream("application/x-ndjson");
  asio::steady_timer timer(context->loop);
  bool ended = false;
  while (sent && !http.gone()) {
    std::string part = std::exchange(line, {});
    sent = co_await http.send_part(std::move(part));
    if (!sent || ended) {
      break;
    }
    if (!pull->done && context->serving != nullptr) {
      timer.expires_after(kPullLook);
      co_await timer.async_wait(kAwait);
    }
    ended = pull->done.has_value() || context->serving == nullptr;
    if (pull->done) {
      line = last_line(http.request(), *pull->done);
    } else if (ended) {
      line =
          api::error_events(api::unavailable("the server is shutting down"), http.request().path);
    } else {
      line = progress_line(*context, model->id, digest);
    }
  }
  if (sent && !http.gone()) {
    (void)co_await http.end_stream();  // Nobody else wants it.
  }
}

Task<void> wait_for_pull(std::shared_ptr<Context> context,
                         HttpExchange& http,
                         std::shared_ptr<CatalogModel> model) {
  std::shared_ptr<Pull> pull = begin_pull(*context, model->id);
  asio::steady_timer timer(context->loop);
  while (!pull->done && !http.gone() && context->serving != nullptr) {
    timer.expires_after(kPullLook);
    co_await timer.async_wait(kAwait);
  }
  if (!pull->done) {
    co_await respond_error(http, api::unavailable("the server is shutting down"));
  } else if (!*pull->done) {
    co_await respond_error(http, api::from_error(pull->done->error()));
  } else {
    co_await respond_json(http, R"({"status":"success"})");
  }
}

/// Loads a model that is configured, with what has to be fetched for that.
Task<void> ollama_pull(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_ollama_model);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::OllamaModel request = std::get<0>(std::move(parsed));
  std::shared_ptr<CatalogModel> model = context->catalog.find(request.model);
  if (!model) {
    api::ApiError error = api::model_not_found(request.model, context->catalog.listed_names());
    error.message +=
        "; heddle pulls what its configuration has: add it there, with the id of a "
        "hub as its path";
    co_await respond_error(http, std::move(error));
    co_return;
  }
  if (request.stream) {
    co_await stream_pull(std::move(context), http, std::move(model));
  } else {
    co_await wait_for_pull(std::move(context), http, std::move(model));
  }
}

/// What changes Ollama's own store of models.
Task<void> not_ollamas_store(std::shared_ptr<Context>, HttpExchange& http, std::string) {
  api::ApiError error = api::not_supported(
      "",
      http.request().path +
          " is not offered: which models there are, heddle's configuration says; change it there");
  error.status = 501;
  co_await respond_error(http, std::move(error));
}

}  // namespace

std::vector<Endpoint> ollama_model_endpoints() {
  return {{{"GET", "/api/tags"}, Access::kAny, ollama_tags},
          {{"GET", "/api/ps"}, Access::kAny, ollama_running},
          {{"POST", "/api/show"}, Access::kInference, ollama_show},
          {{"POST", "/api/pull"}, Access::kAdmin, ollama_pull},
          {{"POST", "/api/push"}, Access::kAdmin, not_ollamas_store},
          {{"POST", "/api/create"}, Access::kAdmin, not_ollamas_store},
          {{"POST", "/api/copy"}, Access::kAdmin, not_ollamas_store},
          {{"DELETE", "/api/delete"}, Access::kAdmin, not_ollamas_store},
          {{"GET", "/api/blobs/{id}"}, Access::kAdmin, not_ollamas_store},
          {{"POST", "/api/blobs/{id}"}, Access::kAdmin, not_ollamas_store, Body::kAny}};
}

}  // namespace heddle::gateway
