#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load.h"
#include "lab/lab_file.h"

namespace heddle::lab {

/// One request of a trace's file, in the file's time.
struct TraceFileRow {
  Duration at{};
  std::string label{};  ///< Of its model.
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
};

/// What one seed sends, in the time of its run: `rows` (by arrival) as LabFile::trace wants them,
/// or requests that are drawn. Labels that are models stay; the others, by name, go to the models
/// in turn. kInvalidArgument where nothing is left.
Result<std::vector<bench::Shot>> take_shots(const LabFile& lab,
                                            const std::vector<TraceFileRow>& rows,
                                            std::int64_t seed);

/// The same, each up to 2 ms later, by arrival; drawn by `play`, of which 0 changes nothing. No two
/// runs of a server are alike: where models compete, who comes a millisecond sooner decides a lot.
[[nodiscard]] std::vector<bench::Shot> played_again(const std::vector<bench::Shot>& shots,
                                                    std::int64_t play);

/// At least 0 and less than `most`, drawn by `play`, of which 0 gives 0.
[[nodiscard]] Duration scatter(std::int64_t play, Duration most);

/// How long after the beginning of one of the planner's windows the requests of a seed begin. The
/// clock on the wall cuts time into windows, and people come at any time of theirs.
[[nodiscard]] Duration place_in_window(std::int64_t seed, Duration window);

/// Whether runs of them keep step with the planner's windows: the server starts as a window begins,
/// sees the next begin with nobody asking, and meets the first of them at the seed's place in that
/// one. What was seen idle is history, too, and changes what is prewarmed for days. A window longer
/// than all requests says little of them, and would be long to wait for: no step is kept with it.
[[nodiscard]] bool keeps_step(const std::vector<bench::Shot>& shots, Duration window);

/// From `wall` [since midnight UTC of any day] until it is so long after the beginning of a window.
[[nodiscard]] Duration until_place(Duration place, Duration wall, Duration window);

/// Gives them to whoever sends them. `shots` outlives it.
class ShotList final : public bench::ShotSource {
 public:
  explicit ShotList(const std::vector<bench::Shot>& shots) : shots_(shots) {}
  bool next(bench::Shot& shot) override;

 private:
  const std::vector<bench::Shot>& shots_;
  std::size_t next_ = 0;
};

}  // namespace heddle::lab
