#pragma once

// For tests only: a model in a cache of a folder that vanishes.

#include <string>
#include <vector>

#include "base/check.h"
#include "fetch/digest.h"
#include "fetch/model_cache.h"
#include "fetch/object.h"
#include "fetch/source_name.h"
#include "store/model_source.h"
#include "store/test_files.h"

namespace heddle::remote {

/// One host's cache.
class TestCache {
 public:
  [[nodiscard]] store::ModelPlaces places() const {
    return {.hub_cache = folder_.path() / "hub", .url_cache = folder_.path() / "own"};
  }
  /// Puts a model of one file there, and says which.
  fetch::Object put(const std::string& model, const std::string& text) const {
    const fetch::Object object{.name = "model.safetensors",
                               .url = "there",
                               .bytes = text.size(),
                               .sha256 = fetch::sha256_of(text)};
    const auto place = fetch::open_place(*fetch::parse_source_name(model), places(), [] {}, {});
    HEDDLE_CHECK(place.has_value());
    const auto jobs = (*place)->missing(std::string(40, 'c'), {object});
    HEDDLE_CHECK(jobs.has_value() && jobs->size() == 1);
    store::write_text(jobs->front().partial, text);
    HEDDLE_CHECK((*place)->keep(jobs->front()).has_value());
    HEDDLE_CHECK((*place)->publish().has_value());
    return object;
  }

 private:
  store::TempDirectory folder_{};
};

}  // namespace heddle::remote
