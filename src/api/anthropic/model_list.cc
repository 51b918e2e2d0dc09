#include "api/anthropic/model_list.h"

#include <algorithm>
#include <span>
#include <utility>

#include "api/utc_time.h"
#include "spec/json_writer.h"

namespace heddle::api {

using spec::JsonWriter;

namespace {

void write_listed(JsonWriter& json, const ModelObject& model) {
  json.begin_object().key("type").string("model").key("id").string(model.id);
  json.key("display_name").string(model.name.empty() ? model.id : model.name);
  json.key("created_at").string(utc_time(model.created * 1'000'000'000));
  json.key("lifecycle").string("active");
  if (model.context_length > 0) {
    json.key("max_input_tokens").integer(model.context_length);
  }
  json.end_object();
}

void write_id(JsonWriter& json, std::string_view key, const ModelObject* model) {
  json.key(key);
  if (model != nullptr) {
    json.string(model->id);
  } else {
    json.null();
  }
}

}  // namespace

std::string anthropic_model_list_json(const std::vector<ModelObject>& models,
                                      const ListPage& page) {
  const auto at = [&models](const std::string& id) {
    return std::find_if(
        models.begin(), models.end(), [&id](const ModelObject& model) { return model.id == id; });
  };
  const auto after = page.after_id.empty() ? models.end() : at(page.after_id);
  auto begin = after == models.end() ? models.begin() : after + 1;
  auto end = std::max(begin, page.before_id.empty() ? models.end() : at(page.before_id));
  const bool more = static_cast<std::size_t>(end - begin) > page.limit;
  if (more && !page.before_id.empty()) {
    begin = end - static_cast<std::ptrdiff_t>(page.limit);
  } else if (more) {
    end = begin + static_cast<std::ptrdiff_t>(page.limit);
  }
  JsonWriter json;
  json.begin_object().key("data").begin_array();
  for (const ModelObject& model : std::span(begin, end)) {
    write_listed(json, model);
  }
  json.end_array();
  write_id(json, "first_id", begin == end ? nullptr : &*begin);
  write_id(json, "last_id", begin == end ? nullptr : &*(end - 1));
  json.key("has_more").boolean(more).end_object();
  return std::move(json).take();
}

std::string anthropic_model_json(const ModelObject& model) {
  JsonWriter json;
  write_listed(json, model);
  return std::move(json).take();
}

}  // namespace heddle::api
