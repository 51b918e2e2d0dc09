#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "api/responses.h"

namespace heddle::api {

/// Which part of a listing is asked for.
struct ListPage {
  std::size_t limit = 20;
  std::string after_id{};   ///< Begin behind the model with this name; empty: at the beginning.
  std::string before_id{};  ///< End before it; empty: at the end.
};

/// Models as Anthropic's API lists them: `{"data":[...],"first_id","last_id","has_more"}`.
[[nodiscard]] std::string anthropic_model_list_json(const std::vector<ModelObject>& models,
                                                    const ListPage& page);
/// One of them: `{"type":"model","id","display_name","created_at","lifecycle",...}`.
[[nodiscard]] std::string anthropic_model_json(const ModelObject& model);

}  // namespace heddle::api
