#include "sim/faults.h"

#include <array>
#include <charconv>
#include <string>

#include "base/units.h"

namespace heddle::sim {
namespace {

using Fault = World::Fault;

constexpr std::array<std::pair<std::string_view, Fault>, 6> kKinds{{
    {"gpu", Fault::kGpu},
    {"host", Fault::kHost},
    {"nic", Fault::kNic},
    {"pcie", Fault::kPcie},
    {"restore", Fault::kRestore},
    {"worker", Fault::kWorker},
}};

bool names_host(Fault fault) {
  return fault == Fault::kHost || fault == Fault::kNic;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line.substr(0, line.find('#'))) {
    if (c == ' ' || c == '\t' || c == '\r') {
      if (!word.empty()) {
        words.push_back(std::exchange(word, {}));
      }
    } else {
      word += c;
    }
  }
  if (!word.empty()) {
    words.push_back(word);
  }
  return words;
}

template <class Number>
bool read(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<FaultPlan> parse_fault(const std::vector<std::string>& words,
                              std::size_t gpus,
                              std::size_t hosts) {
  const auto wrong = [](const std::string& why) {
    return Error{.code = Code::kInvalidArgument,
                 .message = why + "; want such as \"90s nic 2 for 5m at 0.1\""};
  };
  if (words.size() != 5 && words.size() != 7) {
    return wrong("it has " + std::to_string(words.size()) + " words");
  }
  FaultPlan plan;
  const Result<Duration> at = parse_duration(words[0]);
  const Result<Duration> lasts = parse_duration(words[4]);
  if (!at || !lasts || words[3] != "for") {
    return wrong(!at ? at.error().message : !lasts ? lasts.error().message : "\"for\" is missing");
  }
  plan.at = Instant(*at);
  plan.lasts = *lasts;
  bool known = false;
  for (const auto& [word, kind] : kKinds) {
    if (word == words[1]) {
      plan.fault = kind;
      known = true;
    }
  }
  if (!known) {
    return wrong("\"" + words[1] + "\" is none of gpu, host, nic, pcie, restore, worker");
  }
  const std::size_t most = names_host(plan.fault) ? hosts : gpus;
  if (!read(words[2], plan.target) || plan.target >= most) {
    return wrong("\"" + words[2] + "\" is not a number below " + std::to_string(most));
  }
  if (words.size() == 7 &&
      (words[5] != "at" || !read(words[6], plan.factor) || !(plan.factor >= 0))) {
    return wrong("\"" + words[5] + " " + words[6] + "\" is no part of a speed");
  }
  return plan;
}

}  // namespace

Result<std::vector<FaultPlan>> parse_faults(std::string_view text,
                                            std::string_view file,
                                            std::size_t gpus,
                                            std::size_t hosts) {
  std::vector<FaultPlan> plans;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (words.empty()) {
      continue;
    }
    const Result<FaultPlan> plan = parse_fault(words, gpus, hosts);
    if (!plan) {
      return Error{.code = Code::kInvalidArgument,
                   .message = std::string(file) + ", line " + std::to_string(number) + ": " +
                              plan.error().message};
    }
    plans.push_back(*plan);
  }
  return plans;
}

std::vector<FaultPlan> random_faults(
    Rng rng, std::size_t count, Duration span, std::size_t gpus, std::size_t hosts) {
  std::vector<FaultPlan> plans;
  const auto span_ns = static_cast<std::uint64_t>(span.count());
  for (std::size_t i = 0; i < count; ++i) {
    FaultPlan plan{.fault = kKinds.at(rng.below(kKinds.size())).second};
    plan.target = rng.below(names_host(plan.fault) ? hosts : gpus);
    plan.at = Instant(Duration(static_cast<std::int64_t>(rng.below(span_ns))));
    plan.lasts = Duration(static_cast<std::int64_t>(1 + rng.below(span_ns / 4)));
    plan.factor = static_cast<double>(rng.below(4)) / 8;
    plans.push_back(plan);
  }
  return plans;
}

void inject(World& world, const std::vector<FaultPlan>& plans) {
  for (const FaultPlan& plan : plans) {
    world.inject(plan.at, plan.fault, plan.target, plan.factor);
    if (plan.lasts > Duration{}) {
      world.repair(plan.at + plan.lasts, plan.fault, plan.target, plan.factor);
    }
  }
}

}  // namespace heddle::sim
