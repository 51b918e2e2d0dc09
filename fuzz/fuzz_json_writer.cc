// The JSON writer against another implementation: what it writes is always valid, and reads back as
// what was written wherever that was UTF-8.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "api/responses.h"
#include "base/check.h"

namespace api = heddle::api;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const api::AnswerHead head{.id = text, .model = text, .fingerprint = text};
  const api::ChunkWriter chunks(head, size % 2 == 0);
  const std::string written = chunks.text({.index = 1, .text = text});
  HEDDLE_CHECK(written.find_first_of("\r\n") == std::string::npos);
  const auto read = nlohmann::json::parse(written, nullptr, /*allow_exceptions=*/false);
  HEDDLE_CHECK(!read.is_discarded());
  // nlohmann accepts as UTF-8 exactly what the standard does.
  const auto same = nlohmann::json::parse(
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  const std::string expected = same.get<std::string>();
  if (expected == text) {
    const std::string got =
        text.empty() ? "" : read["choices"][0]["delta"]["content"].get<std::string>();
    HEDDLE_CHECK(got == text);
    HEDDLE_CHECK(read["model"].get<std::string>() == text);
  }
  return 0;
}
