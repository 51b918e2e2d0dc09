#include "lab/shots.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/rng.h"

namespace heddle::lab {

namespace {

/// Between what a request is due at and when a server hears of it.
constexpr Duration kArrivalScatter = std::chrono::milliseconds(2);

/// At least 0 and less than `most`.
Duration below(Rng& rng, Duration most) {
  return Duration(static_cast<Duration::rep>(rng.below(static_cast<std::uint64_t>(most.count()))));
}

Duration compress(Duration at, double scale) {
  return Duration(static_cast<std::int64_t>(static_cast<double>(at.count()) / scale));
}

std::int64_t fit(std::int64_t tokens, double factor, std::int64_t most) {
  const auto scaled = static_cast<std::int64_t>(static_cast<double>(tokens) * factor + 0.5);
  return std::max<std::int64_t>(1, most > 0 ? std::min(scaled, most) : scaled);
}

/// Which model a label stands for.
std::map<std::string, std::size_t> match(const std::vector<TraceFileRow>& rows,
                                         const std::vector<std::string>& models) {
  std::set<std::string> labels;
  for (const TraceFileRow& row : rows) {
    labels.insert(row.label);
  }
  std::map<std::string, std::size_t> matched;
  std::size_t others = 0;
  for (const std::string& label : labels) {
    const auto named = std::find(models.begin(), models.end(), label);
    matched[label] = named != models.end() ? static_cast<std::size_t>(named - models.begin())
                                           : others++ % models.size();
  }
  return matched;
}

std::vector<bench::Shot> cut(const TraceFile& trace,
                             const std::vector<TraceFileRow>& rows,
                             const std::vector<std::string>& models,
                             std::int64_t seed) {
  const std::map<std::string, std::size_t> matched = match(rows, models);
  const Duration begin = trace.from + trace.window * seed;
  // A draw below this keeps a row.
  const auto kept = static_cast<std::uint64_t>(trace.keep * 0x1p53);
  Rng rng(static_cast<std::uint64_t>(seed));
  std::vector<bench::Shot> shots;
  for (const TraceFileRow& row : rows) {
    const bool in =
        row.at >= begin && (trace.window == Duration{} || row.at < begin + trace.window);
    if (in && (rng.next() >> 11U) < kept) {
      shots.push_back({.at = row.at - begin,
                       .model = matched.at(row.label),
                       .input_tokens = fit(row.input_tokens, trace.length, trace.most_input),
                       .output_tokens = fit(row.output_tokens, trace.length, trace.most_output)});
    }
  }
  return shots;
}

}  // namespace

Result<std::vector<bench::Shot>> take_shots(const LabFile& lab,
                                            const std::vector<TraceFileRow>& rows,
                                            std::int64_t seed) {
  const std::vector<std::string> models = model_names(lab);
  std::vector<bench::Shot> shots =
      lab.drawn ? draw_trace(*lab.drawn, models.size(), static_cast<std::uint64_t>(seed))
                : cut(*lab.trace, rows, models, seed);
  for (bench::Shot& shot : shots) {
    shot.at = compress(shot.at, lab.scale);
  }
  if (shots.empty() || shots.back().at < lab.warmup) {
    return Error{.code = Code::kInvalidArgument,
                 .message = lab.file + ": seed " + std::to_string(seed) +
                            " has no request after the warm-up; want a longer trace, a shorter "
                            "warm-up, or a smaller scale"};
  }
  return shots;
}

std::vector<bench::Shot> played_again(const std::vector<bench::Shot>& shots, std::int64_t play) {
  std::vector<bench::Shot> again = shots;
  if (play == 0) {
    return again;
  }
  Rng rng(static_cast<std::uint64_t>(play));
  for (bench::Shot& shot : again) {
    shot.at += below(rng, kArrivalScatter);
  }
  std::sort(again.begin(), again.end(), [](const bench::Shot& a, const bench::Shot& b) {
    return std::tie(a.at, a.model, a.input_tokens) < std::tie(b.at, b.model, b.input_tokens);
  });
  return again;
}

Duration scatter(std::int64_t play, Duration most) {
  Rng rng(static_cast<std::uint64_t>(play));
  return play == 0 ? Duration{} : below(rng, most);
}

Duration place_in_window(std::int64_t seed, Duration window) {
  Rng rng(static_cast<std::uint64_t>(seed));
  return below(rng, window);
}

bool keeps_step(const std::vector<bench::Shot>& shots, Duration window) {
  return !shots.empty() && window <= shots.back().at;
}

Duration until_place(Duration place, Duration wall, Duration window) {
  const Duration missing = (place - wall) % window;
  return missing < Duration{} ? missing + window : missing;
}

bool ShotList::next(bench::Shot& shot) {
  if (next_ == shots_.size()) {
    return false;
  }
  shot = shots_[next_++];
  return true;
}

}  // namespace heddle::lab
