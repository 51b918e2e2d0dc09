#include "gguf/part_name.h"

#include <charconv>
#include <system_error>

namespace heddle::gguf {
namespace {

constexpr int kPartsMax = 1024;

}  // namespace

std::optional<PartName> part_name(const std::string& name) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (name.size() <= kForm.size()) {
    return std::nullopt;
  }
  const std::string_view end = std::string_view(name).substr(name.size() - kForm.size());
  PartName part{.stem = name.substr(0, name.size() - kForm.size())};
  const auto digits = [&](std::size_t at, int& value) {
    const char* const first = end.data() + at;
    const auto [rest, error] = std::from_chars(first, first + 5, value);
    return error == std::errc() && rest == first + 5;
  };
  const bool formed = end.front() == '-' && end.substr(6, 4) == "-of-" && digits(1, part.number) &&
                      digits(10, part.count) && end.substr(15) == kGgufEnd;
  const bool plausible = part.number >= 1 && part.number <= part.count && part.count <= kPartsMax;
  return formed && plausible ? std::optional(part) : std::nullopt;
}

}  // namespace heddle::gguf
