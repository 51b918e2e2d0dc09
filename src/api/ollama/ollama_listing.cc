#include "api/ollama/ollama_listing.h"

#include <utility>

#include <fmt/format.h>

#include "api/utc_time.h"
#include "spec/json_writer.h"

namespace heddle::api {

using spec::JsonWriter;

namespace {

/// "8.0B", "134.52M", "847K", as Ollama writes numbers of parameters; empty for 0.
std::string parameter_size(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) {
    return fmt::format("{:.1f}B", number / 1e9);
  }
  if (number >= 1e6) {
    return fmt::format("{:.2f}M", number / 1e6);
  }
  if (number >= 1e3) {
    return fmt::format("{:.0f}K", number / 1e3);
  }
  return count > 0 ? fmt::format("{}", count) : "";
}

void write_details(JsonWriter& json, const OllamaModelObject& model) {
  json.key("details").begin_object().key("parent_model").string("");
  json.key("format").string(model.format).key("family").string(model.family);
  json.key("families").begin_array();
  if (!model.family.empty()) {
    json.string(model.family);
  }
  json.end_array().key("parameter_size").string(parameter_size(model.parameters));
  json.key("quantization_level").string(model.quantization).end_object();
}

void write_named(JsonWriter& json, const OllamaModelObject& model) {
  const std::string name = ollama_name(model.name);
  json.begin_object().key("name").string(name).key("model").string(name);
  json.key("size").integer(model.size).key("digest").string(model.digest);
  write_details(json, model);
}

void write_vector(JsonWriter& json, const std::vector<float>& embedding) {
  json.begin_array();
  for (const float number : embedding) {
    json.number(number);
  }
  json.end_array();
}

}  // namespace

std::string ollama_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const bool tagged = name.find(':', slash == std::string::npos ? 0 : slash) != std::string::npos;
  return tagged ? name : name + ":latest";
}

std::string ollama_tags_json(const std::vector<OllamaModelObject>& models) {
  JsonWriter json;
  json.begin_object().key("models").begin_array();
  for (const OllamaModelObject& model : models) {
    write_named(json, model);
    json.key("modified_at").string(utc_time(model.modified)).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string ollama_running_json(const std::vector<OllamaModelObject>& models) {
  JsonWriter json;
  json.begin_object().key("models").begin_array();
  for (const OllamaModelObject& model : models) {
    write_named(json, model);
    json.key("expires_at").string(utc_time(model.expires));
    json.key("size_vram").integer(model.size_vram);
    if (model.context > 0) {
      json.key("context_length").integer(model.context);
    }
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string ollama_show_json(const OllamaModelObject& model, const OllamaDetails& details) {
  JsonWriter json;
  json.begin_object().key("modelfile").string("").key("parameters").string(details.parameters);
  json.key("template").string("");
  write_details(json, model);
  json.key("model_info").begin_object();
  const std::string family = model.family.empty() ? "general" : model.family;
  if (!model.family.empty()) {
    json.key("general.architecture").string(model.family);
  }
  const std::pair<std::string, std::int64_t> numbers[] = {
      {"general.parameter_count", model.parameters},
      {family + ".block_count", details.layers},
      {family + ".context_length", model.context},
      {family + ".embedding_length", details.embedding},
      {family + ".expert_count", details.experts},
      {family + ".expert_used_count", details.experts_used}};
  for (const auto& [key, number] : numbers) {
    if (number > 0) {
      json.key(key).integer(number);
    }
  }
  json.end_object().key("capabilities").begin_array();
  for (const std::string& capability : details.capabilities) {
    json.string(capability);
  }
  json.end_array().key("modified_at").string(utc_time(model.modified)).end_object();
  return std::move(json).take();
}

std::string ollama_embed_json(const std::string& model,
                              const std::vector<std::vector<float>>& embeddings,
                              const Usage& usage) {
  JsonWriter json;
  json.begin_object().key("model").string(model).key("embeddings").begin_array();
  for (const std::vector<float>& embedding : embeddings) {
    write_vector(json, embedding);
  }
  json.end_array().key("total_duration").integer(usage.spent.total.count());
  json.key("load_duration").integer(usage.spent.load.count());
  json.key("prompt_eval_count").integer(usage.prompt_tokens).end_object();
  return std::move(json).take();
}

std::string ollama_embeddings_json(const std::vector<float>& embedding) {
  JsonWriter json;
  json.begin_object().key("embedding");
  write_vector(json, embedding);
  json.end_object();
  return std::move(json).take();
}

std::string ollama_status_line(std::string_view status,
                               const std::string& digest,
                               std::uint64_t completed,
                               std::uint64_t total) {
  JsonWriter json;
  json.begin_object().key("status").string(status);
  if (!digest.empty()) {
    json.key("digest").string("sha256:" + digest);
  }
  if (total > 0) {
    json.key("total").integer(total).key("completed").integer(completed);
  }
  json.end_object();
  return json.text() + "\n";
}

}  // namespace heddle::api
