#pragma once

// What a benchmark found: for people as it comes, and for programs as JSON, one object a line.

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
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

/// What a figure of a row is to be at least, or at most.
struct Wanted {
  const char* figure = "";
  std::optional<double> least{};
  std::optional<double> most{};
};

/// Rows of figures, each as soon as it is known: JSON lines on standard output, a table on standard
/// error, and in the end what was wanted and what was found.
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

  void row(const std::string& what,
           const std::vector<Figure>& figures,
           const std::optional<Wanted>& wanted = std::nullopt) const {
    spec::JsonWriter json;
    json.begin_object().key("shape").string(shape_).key("what").string(what);
    std::fprintf(stderr, "%-34s", what.c_str());
    for (const Figure& figure : figures) {
      json.key(figure.name).number(figure.value);
      std::fprintf(stderr, "  %s %.4g", figure.name, figure.value);
      if (wanted && std::string_view(figure.name) == wanted->figure) {
        judge(what, figure, *wanted, json);
      }
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
    std::fflush(stdout);
    std::fprintf(stderr, "%-34s  skipped: %s\n", what.c_str(), why.c_str());
    verdicts_.push_back(what + ": skipped, " + why);
  }

  /// All that was wanted, once more, together.
  void conclude() const {
    std::fprintf(stderr, "\n%s, what was wanted:\n", shape_.c_str());
    for (const std::string& verdict : verdicts_) {
      std::fprintf(stderr, "  %s\n", verdict.c_str());
    }
  }

 private:
  void judge(const std::string& what,
             const Figure& figure,
             const Wanted& wanted,
             spec::JsonWriter& json) const {
    const bool met = (!wanted.least || figure.value >= *wanted.least) &&
                     (!wanted.most || figure.value <= *wanted.most);
    const double bound = wanted.least ? *wanted.least : wanted.most.value_or(0.0);
    json.key(wanted.least ? "wanted_least" : "wanted_most").number(bound);
    json.key("met").boolean(met);
    std::array<char, 160> text{};
    std::snprintf(text.data(),
                  text.size(),
                  "%s %.4g, wanted %s %.4g: %s",
                  figure.name,
                  figure.value,
                  wanted.least ? "at least" : "at most",
                  bound,
                  met ? "met" : "MISSED");
    verdicts_.push_back(what + ": " + text.data());
    std::fprintf(stderr, " (%s)", met ? "met" : "MISSED");
  }

  std::string shape_;
  mutable std::vector<std::string> verdicts_{};
};

/// Ends the program where a part of it takes too long, and says which: what was printed before is
/// of use.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      part_.clear();
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on this part runs, for at most so long.
  void part(std::string name, std::chrono::seconds most) {
    {
      const std::lock_guard lock(mutex_);
      part_ = std::move(name);
      until_ = std::chrono::steady_clock::now() + most;
    }
    changed_.notify_one();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (part_.empty()) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, until_) == std::cv_status::timeout && !over_ &&
                 std::chrono::steady_clock::now() >= until_) {
        std::fprintf(stderr, "%s: given up, it took too long\n", part_.c_str());
        std::fflush(nullptr);
        std::_Exit(3);
      }
    }
  }

  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::string part_{};  // Guarded by mutex_, as the following.
  std::chrono::steady_clock::time_point until_{};
  bool over_ = false;
  std::thread thread_;
};

}  // namespace heddle::bench
