// Lists of hubs and buckets: whatever is accepted names files below the model's folder only.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"
#include "fetch/hub_listing.h"
#include "fetch/ranged_read.h"
#include "fetch/s3_listing.h"
#include "fetch/source_name.h"
#include "fetch/url.h"

namespace {

using namespace heddle;

void check_names(const std::vector<fetch::Object>& objects) {
  for (const fetch::Object& object : objects) {
    const std::string path = (std::filesystem::path("/models/m") / object.name).lexically_normal();
    HEDDLE_CHECK(path.starts_with("/models/m/"));
    HEDDLE_CHECK(path.find('\0') == std::string::npos);
    // They become names of files.
    HEDDLE_CHECK(object.sha256.find('/') == std::string::npos);
    HEDDLE_CHECK(object.git_sha1.find('/') == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto commit = fetch::parse_hub_revision(text, "hub")) {
    HEDDLE_CHECK(commit->size() == 40 && commit->find('/') == std::string::npos);
  }
  if (const auto objects = fetch::parse_hub_tree(text, "hub")) {
    check_names(*objects);
  }
  if (const auto page = fetch::parse_s3_page(text, "m/", "s3")) {
    check_names(page->objects);
  }
  (void)fetch::s3_error_code(text);
  (void)fetch::next_page(text);
  if (const auto range = fetch::parse_content_range(text)) {
    HEDDLE_CHECK(range->range.begin <= range->range.end && range->range.end <= range->whole);
  }
  if (const auto name = fetch::parse_source_name(text)) {
    HEDDLE_CHECK(!name->text.empty());
  }
  HEDDLE_CHECK(fetch::shown(text).size() <= 303);
  return 0;
}
