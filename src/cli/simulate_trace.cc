#include "cli/simulate_trace.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <map>

#include "sim/log_trace.h"
#include "sim/otlp_trace.h"
#include "sim/trace.h"

#include <zlib.h>

namespace heddle::cli {

namespace {

constexpr std::size_t kProblemsMost = 20;
constexpr std::int64_t kRowsPerProgress = 1 << 14;

/// Lines of a file, plain or gzip.
class LineReader {
 public:
  explicit LineReader(const std::string& file) : file_(gzopen(file.c_str(), "rb")) {
    std::error_code none;
    size_ = static_cast<double>(std::filesystem::file_size(file, none));
    if (file_ != nullptr) {
      gzbuffer(file_, 1U << 18U);
    }
  }
  ~LineReader() {
    if (file_ != nullptr) {
      gzclose(file_);
    }
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  [[nodiscard]] bool ok() const { return file_ != nullptr; }
  /// Of the compressed file.
  [[nodiscard]] double part_read() const {
    return size_ > 0 ? static_cast<double>(gzoffset(file_)) / size_ : 1;
  }

  /// The next line without its end; false at the end of the file, or where it is broken.
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      if (begin_ == end_ && !fill()) {
        return !line.empty();
      }
      const char* from = buffer_.data() + begin_;
      const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
      const std::size_t count =
          newline == nullptr ? end_ - begin_ : static_cast<std::size_t>(newline - from);
      line.append(from, count);
      begin_ += count + (newline == nullptr ? 0 : 1);
      if (newline != nullptr) {
        return true;
      }
    }
  }

  /// What went wrong, if the file ended because it is broken.
  [[nodiscard]] std::string failure() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return code == Z_OK || code == Z_STREAM_END ? "" : text;
  }

 private:
  bool fill() {
    const int count = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    begin_ = 0;
    end_ = count > 0 ? static_cast<std::size_t>(count) : 0;
    return count > 0;
  }

  gzFile file_;
  double size_ = 0;
  std::array<char, 1U << 16U> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Rows of a file as options want them, with what is wrong told to `problem`.
class RowReader {
 public:
  using Problem = std::function<void(std::int64_t line, const std::string& why)>;
  RowReader(const TraceOptions& options, Problem problem)
      : options_(options),
        reader_(options.drawn ? std::string() : options.file),
        problem_(std::move(problem)),
        held_(options.drawn.get()) {}

  [[nodiscard]] bool ok() const { return options_.drawn != nullptr || reader_.ok(); }
  /// Of the file as it lies there, or of the rows.
  [[nodiscard]] double part_read() const {
    return held_ == nullptr ? reader_.part_read()
                            : static_cast<double>(next_held_) / static_cast<double>(held_->size());
  }
  [[nodiscard]] std::int64_t line() const { return number_; }
  /// A line that belongs to no request after all: its model is unknown.
  void refuse(const std::string& why) { problem_(number_, why); }

  bool next(sim::ParsedRow& row) {
    if (held_ != nullptr) {
      return next_held(row);
    }
    while (reader_.next(text_)) {
      ++number_;
      if (number_ == 1 && sim::OtlpTrace::is(text_)) {
        load<sim::OtlpTrace>();
        return next_held(row);
      }
      if (number_ == 1 && sim::LogTrace::is(text_)) {
        load<sim::LogTrace>();
        return next_held(row);
      }
      const Result<std::optional<sim::ParsedRow>> parsed = parser_.parse(text_);
      if (!parsed) {
        problem_(number_, parsed.error().message);
        continue;
      }
      if (!parsed->has_value()) {
        continue;
      }
      row = **parsed;
      if (options_.until > Duration{} && row.arrival.time_since_epoch() > options_.until) {
        return false;
      }
      adapt(row);
      return true;
    }
    return false;
  }

  /// What went wrong, if the rows ended because the file is broken: cut off, or not gzip
  /// throughout.
  [[nodiscard]] std::optional<Error> broken() const {
    const std::string failure = options_.drawn ? std::string() : reader_.failure();
    return failure.empty()
               ? std::nullopt
               : std::optional(Error{.code = Code::kCorrupt,
                                     .message = options_.file + ": broken after line " +
                                                std::to_string(number_) + ": " + failure});
  }

 private:
  /// All requests of a file that has them in the order of their ends.
  template <class Trace>
  void load() {
    Trace trace;
    do {
      if (const Result<void> added = trace.add(text_); !added) {
        problem_(number_, added.error().message);
      }
      ++number_;
    } while (reader_.next(text_));
    spans_ = trace.rows();
    held_ = &spans_;
  }
  bool next_held(sim::ParsedRow& row) {
    if (next_held_ == held_->size()) {
      return false;
    }
    const sim::OtlpRow& held = (*held_)[next_held_++];
    row = {.arrival = held.arrival,
           .model = held.model,
           .input_tokens = held.input_tokens,
           .output_tokens = held.output_tokens};
    if (options_.until > Duration{} && row.arrival.time_since_epoch() > options_.until) {
      return false;
    }
    adapt(row);
    return true;
  }
  void adapt(sim::ParsedRow& row) const {
    if (options_.speed != 1) {
      const auto at = static_cast<double>(row.arrival.time_since_epoch().count());
      row.arrival = Instant(Duration(static_cast<std::int64_t>(at / options_.speed)));
    }
    if (row.model.empty()) {
      row.model = options_.model;
    }
    if (options_.most_input > 0) {
      row.input_tokens = std::min(row.input_tokens, options_.most_input);
    }
    row.output_tokens = std::max(row.output_tokens, options_.least_output);
  }

  const TraceOptions& options_;
  LineReader reader_;
  Problem problem_;
  sim::TraceParser parser_{};
  std::string text_{};
  std::int64_t number_ = 0;
  std::vector<sim::OtlpRow> spans_{};  ///< Of a file of spans, or a log.
  /// Rows that are in memory; none: they are read one by one.
  const std::vector<sim::OtlpRow>* held_;
  std::size_t next_held_ = 0;
};

class FileSource final : public sim::RequestSource {
 public:
  FileSource(const TraceOptions& options,
             const std::vector<sim::ModelSpec>& models,
             std::function<void(double)> progress)
      : options_(options),
        rows_(options_, [](std::int64_t, const std::string&) {}),
        progress_(std::move(progress)) {
    for (std::size_t i = 0; i < models.size(); ++i) {
      models_.emplace(models[i].name, ModelId(i));
    }
  }
  [[nodiscard]] bool ok() const { return rows_.ok(); }

  bool next(sim::TraceRow& row) override {
    sim::ParsedRow parsed;
    while (rows_.next(parsed)) {
      const auto model = models_.find(parsed.model);
      if (model == models_.end()) {
        continue;
      }
      if (++count_ % kRowsPerProgress == 0 && progress_) {
        progress_(rows_.part_read());
      }
      row = {.arrival = parsed.arrival,
             .model = model->second,
             .input_tokens = parsed.input_tokens,
             .output_tokens = parsed.output_tokens};
      return true;
    }
    return false;
  }

 private:
  TraceOptions options_;
  RowReader rows_;
  std::function<void(double)> progress_;
  std::map<std::string, ModelId, std::less<>> models_{};
  std::int64_t count_ = 0;
};

struct Sum {
  std::int64_t rows = 0;
  double input = 0;
  double output = 0;
  bool known = false;
  sim::ModelSpec spec{};
};

}  // namespace

double TraceSummary::requests_per_second() const {
  const double seconds = to_seconds(span);
  return seconds > 0 ? static_cast<double>(rows) / seconds : 0;
}

Result<TraceSummary> survey_trace(const TraceOptions& options,
                                  const std::vector<ModelRule>& rules) {
  TraceSummary summary;
  RowReader rows(options, [&](std::int64_t line, const std::string& why) {
    ++summary.bad_rows;
    if (summary.problems.size() < kProblemsMost) {
      summary.problems.push_back(options.file + ", line " + std::to_string(line) + ": " + why);
    }
  });
  if (!rows.ok()) {
    return Error{.code = Code::kNotFound, .message = options.file + ": cannot be read"};
  }
  std::map<std::string, Sum, std::less<>> sums;
  sim::ParsedRow row;
  while (rows.next(row)) {
    auto found = sums.find(row.model);
    if (found == sums.end()) {
      found = sums.emplace(std::string(row.model), Sum{}).first;
      const Result<sim::ModelSpec> spec = find_model(rules, found->first);
      found->second.known = spec.has_value();
      found->second.spec = spec ? *spec : sim::ModelSpec{};
    }
    Sum& sum = found->second;
    if (!sum.known) {
      rows.refuse("no rule of the model file fits \"" + found->first + "\"");
      continue;
    }
    ++sum.rows;
    ++summary.rows;
    sum.input += static_cast<double>(row.input_tokens);
    sum.output += static_cast<double>(row.output_tokens);
    summary.span = row.arrival.time_since_epoch();
  }
  if (const std::optional<Error> broken = rows.broken()) {
    return *broken;
  }
  if (summary.rows == 0) {
    return Error{.code = Code::kInvalidArgument,
                 .message = options.file + ": has no request that can be replayed" +
                            (summary.problems.empty() ? "" : "; " + summary.problems.front())};
  }
  const double seconds = std::max(1.0, to_seconds(summary.span));
  for (const auto& [label, sum] : sums) {
    if (sum.known) {
      const auto count = static_cast<double>(sum.rows);
      summary.models.push_back(sum.spec);
      summary.demand.push_back({.requests_per_second = count / seconds,
                                .input_tokens = sum.input / count,
                                .output_tokens = sum.output / count});
    }
  }
  return summary;
}

Result<std::unique_ptr<sim::RequestSource>> open_trace(const TraceOptions& options,
                                                       const std::vector<sim::ModelSpec>& models,
                                                       std::function<void(double)> progress) {
  auto source = std::make_unique<FileSource>(options, models, std::move(progress));
  if (!source->ok()) {
    return Error{.code = Code::kNotFound, .message = options.file + ": cannot be read"};
  }
  return std::unique_ptr<sim::RequestSource>(std::move(source));
}

Result<std::vector<sim::TraceRow>> read_rows(const TraceOptions& options,
                                             const std::vector<sim::ModelSpec>& models) {
  auto source = open_trace(options, models, {});
  if (!source) {
    return source.error();
  }
  std::vector<sim::TraceRow> rows;
  for (sim::TraceRow row; (*source)->next(row);) {
    rows.push_back(row);
  }
  return rows;
}

}  // namespace heddle::cli
