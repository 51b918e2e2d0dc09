#include "cli/pull_progress.h"

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "spec/json_writer.h"

namespace heddle::cli {
namespace {

constexpr Duration kRateWindow = std::chrono::seconds(5);
constexpr Duration kBetweenBars = std::chrono::milliseconds(100);
constexpr Duration kBetweenLines = std::chrono::seconds(10);
constexpr std::size_t kBarsMax = 8;
constexpr std::size_t kNameColumns = 36;
constexpr std::size_t kLeftOutShown = 3;

/// The end of a name, in as many columns as all have.
std::string name_column(const std::string& name) {
  const std::string safe = printable(name);
  return safe.size() <= kNameColumns ? safe + std::string(kNameColumns - safe.size(), ' ')
                                     : "..." + safe.substr(safe.size() - kNameColumns + 3);
}

double share(std::uint64_t there, std::uint64_t bytes) {
  return bytes == 0 ? 1 : static_cast<double>(there) / static_cast<double>(bytes);
}

void print_json(const spec::JsonWriter& json) {
  std::printf("%s\n", json.text().c_str());
  std::fflush(stdout);
}

}  // namespace

std::uint64_t PullState::bytes() const {
  std::uint64_t sum = 0;
  for (const PullFile& file : files) {
    sum += file.bytes;
  }
  return sum;
}

std::uint64_t PullState::there() const {
  std::uint64_t sum = 0;
  for (const PullFile& file : files) {
    sum += file.there;
  }
  return sum;
}

std::string format_pull(const PullState& state) {
  const std::uint64_t bytes = state.bytes();
  const std::uint64_t there = state.there();
  std::string text = format_bytes(there) + " of " + format_bytes(bytes);
  if (state.bytes_per_second >= 1) {
    const double seconds =
        static_cast<double>(bytes - std::min(there, bytes)) / std::max(1.0, state.bytes_per_second);
    text += ", " + format_rate(state.bytes_per_second) + ", " +
            format_duration(
                std::chrono::seconds(static_cast<std::int64_t>(std::min(seconds + 0.5, 1e7)))) +
            " left";
  }
  return text;
}

std::string format_pull_bars(const PullState& state, std::size_t rows_max) {
  std::string text;
  std::size_t rows = 0;
  for (const PullFile& file : state.files) {
    const bool is_coming =
        file.state == PullFile::State::kComes || file.state == PullFile::State::kIsChecked;
    if (!is_coming || rows == rows_max) {
      continue;
    }
    ++rows;
    text += "  " + name_column(file.name) + " " + format_bar(share(file.there, file.bytes)) + "  " +
            (file.state == PullFile::State::kIsChecked
                 ? "checking"
                 : format_bytes(file.there) + " of " + format_bytes(file.bytes)) +
            "\n";
  }
  text += "  " + name_column("in all") + " " + format_bar(share(state.there(), state.bytes())) +
          "  " + format_pull(state) + "\n";
  return text;
}

std::string format_left_out(std::span<const fetch::Object> left_out) {
  std::vector<const fetch::Object*> largest;
  for (const fetch::Object& object : left_out) {
    largest.push_back(&object);
  }
  std::ranges::sort(largest, [](const fetch::Object* a, const fetch::Object* b) {
    return std::tie(b->bytes, a->name) < std::tie(a->bytes, b->name);
  });
  std::string text = "left out, as heddle does not read them: ";
  for (std::size_t i = 0; i < largest.size() && i < kLeftOutShown; ++i) {
    text += (i > 0 ? ", " : "") + largest[i]->name + " (" + format_bytes(largest[i]->bytes) + ")";
  }
  if (largest.size() > kLeftOutShown) {
    text += ", " + std::to_string(largest.size() - kLeftOutShown) + " more";
  }
  return text;
}

void RecentRate::add(std::uint64_t bytes, Instant now) {
  if (parts_.empty()) {
    first_ = now;
  }
  parts_.emplace_back(now, bytes);
  bytes_ += bytes;
  while (parts_.front().first < now - kRateWindow) {
    bytes_ -= parts_.front().second;
    first_ = parts_.front().first;
    parts_.pop_front();
  }
}

double RecentRate::at(Instant now) const {
  const Duration span = now - std::max(first_, now - kRateWindow);
  return parts_.empty() || span < kRateWindow / 10 ? 0
                                                   : static_cast<double>(bytes_) / to_seconds(span);
}

void PullProgress::say(const std::string& line) {
  end();
  std::fprintf(stderr, "%s\n", printable(line).c_str());
}

void PullProgress::waits() {
  if (form_ == Form::kJson) {
    spec::JsonWriter json;
    json.begin_object().key("event").string("waiting").key("model").string(model_).end_object();
    print_json(json);
    return;
  }
  say(model_ + ": another process is fetching it; waiting for its end");
}

void PullProgress::removed(const std::vector<std::string>& models) {
  for (const std::string& model : models) {
    if (form_ == Form::kJson) {
      spec::JsonWriter json;
      json.begin_object().key("event").string("removed").key("model").string(model).end_object();
      print_json(json);
    } else {
      say(model + " was removed from the cache, to make room");
    }
  }
}

void PullProgress::begins(std::span<const fetch::Job> files,
                          std::span<const fetch::Object> left_out) {
  for (const fetch::Job& job : files) {
    state_.files.push_back({.name = job.object.name, .bytes = job.object.bytes});
  }
  seen_.assign(files.size(), false);
  shown_ = steady_now();
  if (form_ != Form::kJson) {
    if (!left_out.empty()) {
      say(model_ + ": " + format_left_out(left_out));
    }
    if (!files.empty()) {
      say(model_ + ": fetching " + std::to_string(files.size()) + " files, " +
          format_bytes(state_.bytes()));
    }
    return;
  }
  spec::JsonWriter json;
  json.begin_object().key("event").string("begin").key("model").string(model_);
  json.key("bytes").integer(state_.bytes()).key("files").begin_array();
  for (const PullFile& file : state_.files) {
    json.begin_object().key("name").string(file.name).key("bytes").integer(file.bytes).end_object();
  }
  json.end_array().key("left_out").begin_array();
  for (const fetch::Object& object : left_out) {
    json.string(object.name);
  }
  json.end_array().end_object();
  print_json(json);
}

void PullProgress::moved(std::size_t file, std::uint64_t bytes) {
  PullFile& state = state_.files[file];
  state.state = PullFile::State::kComes;
  // What was there when it began did not come now.
  if (seen_[file] && bytes > state.there) {
    rate_.add(bytes - state.there, steady_now());
  }
  seen_[file] = true;
  state.there = bytes;
  show(false);
}

void PullProgress::checking(std::size_t file) {
  state_.files[file].state = PullFile::State::kIsChecked;
  show(false);
}

void PullProgress::came(std::size_t file) {
  state_.files[file].state = PullFile::State::kThere;
  if (form_ == Form::kJson) {
    spec::JsonWriter json;
    json.begin_object().key("event").string("file").key("model").string(model_);
    json.key("name").string(state_.files[file].name);
    json.key("bytes").integer(state_.files[file].bytes).end_object();
    print_json(json);
  }
  show(false);
}

void PullProgress::retries(const std::string& why, Duration wait) {
  if (form_ == Form::kJson) {
    spec::JsonWriter json;
    json.begin_object().key("event").string("retry").key("model").string(model_);
    json.key("why").string(why).key("wait_s").number(to_seconds(wait)).end_object();
    print_json(json);
    return;
  }
  say(model_ + ": " + why + "; trying again in " + format_duration(wait));
}

void PullProgress::show(bool now) {
  const Instant time = steady_now();
  const Duration between = form_ == Form::kLines ? kBetweenLines : kBetweenBars;
  if (!now && time - shown_ < (form_ == Form::kJson ? kBetweenLines / 10 : between)) {
    return;
  }
  shown_ = time;
  state_.bytes_per_second = rate_.at(time);
  switch (form_) {
    case Form::kBars:
      draw();
      break;
    case Form::kLines:
      std::fprintf(stderr, "%s: %s\n", printable(model_).c_str(), format_pull(state_).c_str());
      break;
    case Form::kJson: {
      spec::JsonWriter json;
      json.begin_object().key("event").string("progress").key("model").string(model_);
      json.key("there").integer(state_.there()).key("bytes").integer(state_.bytes());
      json.key("bytes_per_second").number(state_.bytes_per_second).end_object();
      print_json(json);
      break;
    }
  }
}

void PullProgress::draw() {
  const std::string bars = format_pull_bars(state_, kBarsMax);
  end();
  std::fputs(bars.c_str(), stderr);
  std::fflush(stderr);
  lines_ = static_cast<std::size_t>(std::ranges::count(bars, '\n'));
}

void PullProgress::end() {
  if (lines_ > 0) {
    std::fprintf(stderr, "\x1b[%zuA\x1b[J", lines_);
    lines_ = 0;
  }
}

void PullProgress::tell(const Result<fetch::Pulled>& pulled) {
  end();
  if (form_ == Form::kJson) {
    spec::JsonWriter json;
    json.begin_object().key("event").string(pulled ? "done" : "error").key("model").string(model_);
    if (pulled) {
      json.key("directory").string(pulled->directory.string());
      json.key("revision").string(pulled->revision);
      json.key("bytes").integer(pulled->bytes).key("fetched").integer(pulled->fetched_bytes);
    } else {
      json.key("message").string(pulled.error().message);
    }
    json.end_object();
    print_json(json);
    return;
  }
  if (pulled) {
    std::printf("%s: %s, %s, in %s\n",
                printable(model_).c_str(),
                pulled->fetched_bytes == 0 ? "was there" : "fetched",
                format_bytes(pulled->bytes).c_str(),
                pulled->directory.c_str());
    std::fflush(stdout);
  }
}

}  // namespace heddle::cli
