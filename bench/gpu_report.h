#pragma once

// What a benchmark found: for people as it comes, and for programs as JSON, one object a line.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "spec/json_writer.h"

namespace heddle::bench {

/// The value, or the end of the program with the reason.
template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}
inline void must(const Result<void>& result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
}

/// The middle one; of an even count the greater of two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A number with its name, whose end says the unit.
struct Figure {
  const char* name = "";
  double value = 0;
};

/// Rows of figures: JSON lines on standard output, a table on standard error.
class Report {
 public:
  explicit Report(std::string shape) : shape_(std::move(shape)) {}

  /// On what everything that follows was measured.
  void device(const std::string& name) const {
    spec::JsonWriter json;
    json.begin_object().key("shape").string(shape_).key("device").string(name).end_object();
    std::printf("%s\n", json.text().c_str());
    std::fprintf(stderr, "\n%s on %s\n", shape_.c_str(), name.c_str());
  }

  void row(const std::string& what, const std::vector<Figure>& figures) const {
    spec::JsonWriter json;
    json.begin_object().key("shape").string(shape_).key("what").string(what);
    std::fprintf(stderr, "%-34s", what.c_str());
    for (const Figure& figure : figures) {
      json.key(figure.name).number(figure.value);
      std::fprintf(stderr, "  %s %.4g", figure.name, figure.value);
    }
    std::fprintf(stderr, "\n");
    std::printf("%s\n", json.end_object().text().c_str());
    std::fflush(stdout);
  }
  /// What was not measured, and why.
  void skip(const std::string& what, const std::string& why) const {
    spec::JsonWriter json;
    json.begin_object().key("shape").string(shape_).key("what").string(what);
    json.key("skipped").string(why).end_object();
    std::printf("%s\n", json.text().c_str());
    std::fprintf(stderr, "%-34s  skipped: %s\n", what.c_str(), why.c_str());
  }

 private:
  std::string shape_;
};

}  // namespace heddle::bench
