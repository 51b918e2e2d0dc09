#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "fetch/pull.h"

namespace heddle::cli {

/// One file of a pull.
struct PullFile {
  enum class State : std::uint8_t { kWaits, kComes, kIsChecked, kThere };

  std::string name{};
  std::uint64_t bytes = 0;
  std::uint64_t there = 0;
  State state = State::kWaits;
};

/// How far a pull is.
struct PullState {
  std::vector<PullFile> files{};
  double bytes_per_second = 0;  ///< Of late; 0 where it is not known.

  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint64_t there() const;
};

/// "1.20 GiB of 3.40 GiB, 50.0 MB/s, 47.0 s left".
[[nodiscard]] std::string format_pull(const PullState& state);

/// Lines with a bar for each file that comes, at most `rows_max`, and one for all.
[[nodiscard]] std::string format_pull_bars(const PullState& state, std::size_t rows_max);

/// "left out, as heddle does not read them: model.bin (13.0 GiB), a.onnx (1.00 GiB), 3 more".
[[nodiscard]] std::string format_left_out(std::span<const fetch::Object> left_out);

/// The rate of what came in the last seconds.
class RecentRate {
 public:
  /// So many bytes came, at `now`, which does not go back.
  void add(std::uint64_t bytes, Instant now);
  /// Bytes a second; 0 before half a second has passed.
  [[nodiscard]] double at(Instant now) const;

 private:
  std::deque<std::pair<Instant, std::uint64_t>> parts_{};
  Instant first_{};
  std::uint64_t bytes_ = 0;
};

/// Tells people or programs how a pull goes.
class PullProgress final : public fetch::PullWatch {
 public:
  enum class Form : std::uint8_t {
    kBars,   ///< On stderr, which is a terminal.
    kLines,  ///< On stderr, now and then.
    kJson,   ///< On stdout, an object a line.
  };
  PullProgress(std::string model, Form form) : model_(std::move(model)), form_(form) {}

  void waits() override;
  void removed(const std::vector<std::string>& models) override;
  void begins(std::span<const fetch::Job> files, std::span<const fetch::Object> left_out) override;
  void moved(std::size_t file, std::uint64_t bytes) override;
  void checking(std::size_t file) override;
  void came(std::size_t file) override;
  void retries(const std::string& why, Duration wait) override;

  /// Clears the bars.
  void end();
  /// Says that all is there, or why not.
  void tell(const Result<fetch::Pulled>& pulled);

 private:
  /// A line on stderr, above the bars.
  void say(const std::string& line);
  void show(bool now);
  void draw();

  std::string model_;
  Form form_;
  PullState state_{};
  RecentRate rate_{};
  std::vector<bool> seen_{};  ///< Of a file has been told what was there before.
  Instant shown_{};
  std::size_t lines_ = 0;  ///< Of bars on the terminal.
};

}  // namespace heddle::cli
