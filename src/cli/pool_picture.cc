#include "cli/pool_picture.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include "spec/json_view.h"

namespace heddle::cli {
namespace {

constexpr char kWeights = 'W';
constexpr char kKv = 'K';
/// Of a terminal's 256 those on which black letters are read well, neighbours far apart.
constexpr int kColours[] = {110, 173, 150, 182, 180, 109, 217, 187, 146, 215};

/// What the pool holds of this kind [pages].
double held(const spec::Json& pool, std::string_view kind) {
  return spec::number_at(pool, {"pages", kind, "held"});
}

/// What the pool holds of all kinds [pages].
double held(const spec::Json& pool) {
  const spec::Json* kinds = spec::value_at(pool, {"pages"});
  const auto* members = kinds == nullptr ? nullptr : kinds->as<spec::Json::Object>();
  double pages = 0;
  if (members != nullptr) {
    for (const spec::Json::Member& kind : *members) {
      pages += spec::number_at(kind.value, {"held"});
    }
  }
  return pages;
}

char sign_of(const PoolPart& part, const ModelMarks& marks) {
  if (part.model.empty()) {
    return part.sign;
  }
  const auto mark = marks.find(part.model);
  const char letter = mark == marks.end() ? '?' : mark->second.letter;
  return part.sign == kWeights ? static_cast<char>(std::toupper(letter)) : letter;
}

std::string coloured(const std::string& text, const PoolPart& part, const ModelMarks& marks) {
  const auto mark = marks.find(part.model);
  return mark == marks.end()
             ? text
             : "\x1b[30;48;5;" + std::to_string(mark->second.colour) + "m" + text + "\x1b[0m";
}

}  // namespace

ModelMarks model_marks(const std::vector<std::string>& models) {
  ModelMarks marks;
  int at = 0;
  for (const std::string& model : models) {
    marks[model] = {.letter = static_cast<char>('a' + at % 26),
                    .colour = kColours[at % std::ssize(kColours)]};
    ++at;
  }
  return marks;
}

std::vector<PoolPart> pool_parts(const spec::Json& pool) {
  std::vector<PoolPart> parts;
  double of_models = 0;
  const auto add = [&](const spec::Json& of, char sign, double pages) {
    if (pages > 0) {
      parts.push_back({.model = spec::text_at(of, {"model"}), .sign = sign, .pages = pages});
      of_models += pages;
    }
  };
  for (const spec::Json& model : spec::items_at(pool, {"models"})) {
    add(model, kWeights, spec::number_at(model, {"weights_pages"}));
    add(model, kKv, spec::number_at(model, {"kv_pages"}));
  }
  for (const spec::Json& guest : spec::items_at(pool, {"guests"})) {
    add(guest, kKv, spec::number_at(guest, {"pages"}));
  }
  const double cached = held(pool, "kv_cached");
  const double images = held(pool, "image");
  // The manager may know of a load before the device's own account has its pages.
  const double taken =
      spec::number_at(pool, {"pages_total"}) - spec::number_at(pool, {"pages_free"});
  const double rest = std::max(held(pool), taken) - of_models - cached - images;
  for (const auto& [sign, pages] : {std::pair('=', cached), {'i', images}, {'#', rest}}) {
    if (pages > 0) {
      parts.push_back({.sign = sign, .pages = pages});
    }
  }
  return parts;
}

std::string draw_pool(const spec::Json& pool,
                      const ModelMarks& marks,
                      std::size_t columns,
                      bool colours) {
  const std::vector<PoolPart> parts = pool_parts(pool);
  double total = 0;
  for (const PoolPart& part : parts) {
    total += part.pages;
  }
  total = std::max({total, spec::number_at(pool, {"pages_total"}), 1.0});
  std::string text;
  std::size_t drawn = 0;
  double until = 0;
  for (const PoolPart& part : parts) {
    until += part.pages;
    const auto edge =
        static_cast<std::size_t>(std::lround(until / total * static_cast<double>(columns)));
    const std::string signs(edge - std::min(edge, drawn), sign_of(part, marks));
    text += colours && !signs.empty() ? coloured(signs, part, marks) : signs;
    drawn = std::max(edge, drawn);
  }
  return text + std::string(columns - std::min(columns, drawn), '.');
}

}  // namespace heddle::cli
