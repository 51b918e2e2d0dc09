#include "cli/given_models.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "config/document.h"
#include "gguf/gguf_file.h"
#include "gguf/part_name.h"
#include "spec/json_writer.h"
#include "store/model_source.h"

namespace heddle::cli {

namespace fs = std::filesystem;

namespace {

/// A model as the command line has it.
struct Given {
  std::string name{};
  std::string alias{};  ///< Empty: none.
  std::string path{};   ///< Absolute, where it is one.
};

/// "NAME=PATH" in two; a path may have such a sign behind a slash.
std::pair<std::string, std::string> split_name(const std::string& text) {
  const std::size_t sign = text.find('=');
  const bool named = sign != std::string::npos && sign > 0 && sign + 1 < text.size() &&
                     text.find('/') > sign && !store::is_url(text);
  return named ? std::pair(text.substr(0, sign), text.substr(sign + 1)) : std::pair("", text);
}

std::string last_part(std::string text) {
  while (text.ends_with('/')) {
    text.pop_back();
  }
  return text.substr(text.rfind('/') + 1);
}

/// What a file or folder is called: of a GGUF file without its end, and the number of a part.
std::string name_of_file(const fs::path& path) {
  if (const auto part = gguf::part_name(path.filename().string())) {
    return part->stem;
  }
  return path.extension() == gguf::kGgufEnd ? path.stem().string() : last_part(path.string());
}

Result<Given> read_given(const std::string& text) {
  auto [name, path] = split_name(text);
  std::error_code failed;
  if (fs::exists(path, failed)) {
    // Links stay: what the hub's tools keep is named by them.
    fs::path whole = fs::absolute(path).lexically_normal();
    whole = whole.has_filename() ? whole : whole.parent_path();
    return Given{.name = name.empty() ? name_of_file(whole) : name, .path = whole.string()};
  }
  const auto hub = store::parse_hub_name(path);
  const bool elsewhere =
      store::is_url(path) || (hub && hub->repository.find('/') != std::string::npos);
  const bool file = path.starts_with('/') || path.starts_with('.') || path.starts_with('~') ||
                    path.ends_with(gguf::kGgufEnd);
  if (file || !elsewhere) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "serve \"" + path + "\": there is no such file or directory" +
                            (file ? "" : "; a model of the hub is named as org/name")};
  }
  if (!name.empty()) {
    return Given{.name = name, .path = path};
  }
  const std::string whole = path.starts_with("hf://") ? path.substr(5) : path;
  return Given{.name = whole, .alias = last_part(whole), .path = path};
}

Result<std::vector<Given>> read_all(const std::vector<std::string>& given) {
  std::vector<Given> models;
  std::set<std::string> names;
  for (const std::string& text : given) {
    Result<Given> model = read_given(text);
    if (!model) {
      return model.error();
    }
    if (!names.insert(model->name).second) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "serve \"" + text + "\": another model is called \"" + model->name +
                              "\" already; want NAME=" + text};
    }
    models.push_back(std::move(*model));
  }
  for (Given& model : models) {
    if (!model.alias.empty() && !names.insert(model.alias).second) {
      model.alias.clear();
    }
  }
  return models;
}

/// Of memory for all, a third is for models that wait for their turn; on a machine with GPUs all.
void write_memory(spec::JsonWriter& json, std::uint64_t bytes, bool gpus) {
  const std::uint64_t waiting = gpus ? bytes : bytes / 3;
  json.key("host").begin_object().key("memory").integer(waiting).end_object();
  if (!gpus) {
    json.key("devices").begin_array().begin_object();
    json.key("name").string("cpu0").key("kind").string("cpu");
    json.key("memory").integer(bytes - waiting).end_object().end_array();
  }
}

}  // namespace

bool is_configuration(const std::vector<std::string>& given) {
  if (given.size() != 1) {
    return false;
  }
  const fs::path path = given.front();
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) {
    return !gguf::is_gguf(path);
  }
  const std::string end = path.extension().string();
  return !fs::exists(path, failed) && (end == ".yaml" || end == ".yml" || end == ".json");
}

Result<std::string> document_of(const std::vector<std::string>& given,
                                const std::string& memory,
                                bool gpus) {
  const Result<std::vector<Given>> models = read_all(given);
  if (!models) {
    return models.error();
  }
  spec::JsonWriter json;
  json.begin_object();
  if (!memory.empty()) {
    const Result<std::uint64_t> bytes = parse_bytes(memory);
    if (!bytes) {
      return Error{.code = bytes.error().code, .message = "--memory: " + bytes.error().message};
    }
    write_memory(json, *bytes, gpus);
  }
  json.key("models").begin_object();
  for (const Given& model : *models) {
    json.key(model.name).begin_object().key("path").string(model.path);
    if (!model.alias.empty()) {
      json.key("aliases").begin_array().string(model.alias).end_array();
    }
    json.end_object();
  }
  json.end_object().end_object();
  return std::move(json).take();
}

Result<config::Config> given_models(const std::vector<std::string>& given,
                                    const std::string& memory) {
  const config::Machine machine = config::this_machine();
  const bool gpus = std::ranges::any_of(
      machine.gpus, [](const config::Gpu& gpu) { return gpu.unusable.empty(); });
  const Result<std::string> document = document_of(given, memory, gpus);
  return document
             ? config::parse_config(*document, "heddle serve", config::process_environment, machine)
             : document.error();
}

}  // namespace heddle::cli
