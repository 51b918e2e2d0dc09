#pragma once

// What gpu_model is asked for.

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/tunables.h"
#include "base/units.h"
#include "bench/gpu_report.h"
#include "bench/gpu_shapes.h"

namespace heddle::bench {

/// Parts of the measurement, in their order. Ceilings are always measured.
inline constexpr std::array kParts{"load",
                                   "evict",
                                   "prefill",
                                   "first_token",
                                   "decode",
                                   "busy",
                                   "operations",
                                   "elastic",
                                   "switch",
                                   "hand_over",
                                   "map",
                                   "transformers"};

struct ModelOptions {
  std::vector<Shape> shapes{};
  std::uint64_t memory = 0;
  std::size_t page_bytes = 0;
  std::string python = "python3";
  std::set<std::string> parts{};  ///< Empty: all.
  double budget = 0;              ///< Of the whole run [s]; 0: no bound.
  bool tunables = false;          ///< Say what tunables there are, and end.

  [[nodiscard]] bool has(const std::string& part) const {
    return parts.empty() || parts.contains(part);
  }
};

[[noreturn]] inline void usage_of_model() {
  std::string parts;
  for (const char* const part : kParts) {
    parts += std::string(parts.empty() ? "" : "|") + part;
  }
  std::fprintf(stderr,
               "gpu_model [--shape llama-3-8b|qwen2.5-14b|llama-3-8b-q4_k|llama-3-8b-fp8|"
               "llama-3-8b-w8a8|qwen3-30b-a3b-q4_k|tiny|tiny-experts]... [--part %s]...\n"
               "          [--operations] [--budget SECONDS] [--batches N,N,...] [--steps N]\n"
               "          [--rounds N] [--memory SIZE] [--page SIZE] [--python PROGRAM]\n"
               "gpu_model --tunables\n",
               parts.c_str());
  std::exit(2);
}

/// Numbers from 1 on between commas.
inline std::vector<std::int64_t> read_numbers(std::string_view text) {
  std::vector<std::int64_t> numbers;
  while (true) {
    const std::string_view one = text.substr(0, text.find(','));
    std::int64_t number = 0;
    const auto [end, status] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (status != std::errc() || end != one.data() + one.size() || number < 1) {
      usage_of_model();
    }
    numbers.push_back(number);
    if (one.size() == text.size()) {
      return numbers;
    }
    text.remove_prefix(one.size() + 1);
  }
}

/// Reads arguments; what is no option, or no value of one, ends the program with its usage.
class ModelOptionsReader {
 public:
  ModelOptions read(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view key = argv[i];
      if (key == "--operations") {
        options_.parts.insert("operations");
      } else if (key == "--tunables") {
        options_.tunables = true;
      } else if (i + 1 < argc) {
        take(key, argv[++i]);
      } else {
        usage_of_model();
      }
    }
    if (options_.shapes.empty()) {
      options_.shapes = {llama_3_8b(), qwen25_14b()};
    }
    for (Shape& shape : options_.shapes) {
      shape.batches = batches_.empty() ? shape.batches : batches_;
      shape.steps = steps_.value_or(shape.steps);
      shape.rounds = static_cast<int>(rounds_.value_or(shape.rounds));
    }
    return options_;
  }

 private:
  void take(std::string_view key, std::string_view value) {
    if (key == "--shape") {
      options_.shapes.push_back(shape_called(value));
    } else if (key == "--part") {
      take_parts(value);
    } else if (key == "--budget") {
      options_.budget = static_cast<double>(read_numbers(value).front());
    } else if (key == "--batches") {
      batches_ = read_numbers(value);
    } else if (key == "--steps") {
      steps_ = read_numbers(value).front();
    } else if (key == "--rounds") {
      rounds_ = read_numbers(value).front();
    } else if (key == "--memory") {
      options_.memory = must(parse_bytes(value));
    } else if (key == "--python") {
      options_.python = value;
    } else if (key == "--page") {
      options_.page_bytes = must(parse_bytes(value));
    } else {
      usage_of_model();
    }
  }

  static Shape shape_called(std::string_view name) {
    for (const Shape& shape : all_shapes()) {
      if (shape.name == name) {
        return shape;
      }
    }
    usage_of_model();
  }

  /// "load,decode" are two.
  void take_parts(std::string_view names) {
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(','));
      if (std::find(kParts.begin(), kParts.end(), name) == kParts.end()) {
        usage_of_model();
      }
      options_.parts.emplace(name);
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
  }

  ModelOptions options_{};
  std::vector<std::int64_t> batches_{};
  std::optional<std::int64_t> steps_{};
  std::optional<std::int64_t> rounds_{};
};

/// How much of a run's time is left.
class Budget {
 public:
  /// 0: there is no bound.
  explicit Budget(double seconds) : seconds_(seconds) {}

  /// At most `most`, and not more than is left; nothing where too little is.
  [[nodiscard]] std::optional<std::chrono::seconds> left(std::chrono::seconds most) const {
    if (seconds_ <= 0) {
      return most;
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began_;
    const auto left = static_cast<std::int64_t>(seconds_ - passed.count());
    return left < kLeast ? std::nullopt : std::optional(std::min(most, std::chrono::seconds(left)));
  }

 private:
  static constexpr std::int64_t kLeast = 2;  ///< In fewer seconds nothing is begun.

  double seconds_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Tells all tunables and the values that this run has, on standard output.
inline void tell_tunables(const Tunables& values) {
  for (const Tunable& each : all_tunables()) {
    spec::JsonWriter json;
    json.begin_object().key("tunable").string(each.name);
    json.key("value").integer(values.get(each.which)).key("usual").integer(each.usual);
    json.key("least").integer(each.least).key("most").integer(each.most);
    json.key("step").integer(each.step).key("what").string(each.what).end_object();
    std::printf("%s\n", json.text().c_str());
    std::fprintf(stderr,
                 "%-32s %6lld (usually %lld, %lld to %lld)  %s\n",
                 each.name,
                 static_cast<long long>(values.get(each.which)),
                 static_cast<long long>(each.usual),
                 static_cast<long long>(each.least),
                 static_cast<long long>(each.most),
                 each.what);
  }
}

}  // namespace heddle::bench
