#include "bench/load.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace heddle::bench {

namespace {

class Drawn final : public ShotSource {
 public:
  explicit Drawn(const DrawnLoad& load)
      : load_(load),
        total_(std::accumulate(load.weights.begin(), load.weights.end(), 0.0)),
        rng_(load.seed) {
    HEDDLE_CHECK(total_ > 0);
    HEDDLE_CHECK(load.input.least <= load.input.most && load.output.least <= load.output.most);
  }

  bool next(Shot& shot) override {
    if (load_.rate > 0) {
      // The gaps of a Poisson process are exponential.
      seconds_ += -std::log1p(-part()) / load_.rate;
    }
    shot.at = Duration(static_cast<std::int64_t>(seconds_ * 1e9));
    shot.model = draw_model();
    shot.input_tokens = draw(load_.input);
    shot.output_tokens = draw(load_.output);
    return true;
  }

 private:
  /// In [0, 1).
  double part() { return static_cast<double>(rng_.next() >> 11U) * 0x1p-53; }

  std::size_t draw_model() {
    double left = part() * total_;
    for (std::size_t i = 0; i + 1 < load_.weights.size(); ++i) {
      left -= load_.weights[i];
      if (left < 0) {
        return i;
      }
    }
    return load_.weights.size() - 1;
  }

  std::int64_t draw(TokenRange range) {
    const auto count = static_cast<std::uint64_t>(range.most - range.least + 1);
    return range.least + static_cast<std::int64_t>(rng_.below(count));
  }

  DrawnLoad load_;
  double total_;
  Rng rng_;
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<ShotSource> draw_load(const DrawnLoad& load) {
  return std::make_unique<Drawn>(load);
}

}  // namespace heddle::bench
