#include "policy/admission.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

std::int64_t ceil_divide(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// Blocks of one sequence in one group. A window keeps its tokens and the block they leave.
std::int64_t blocks_of(const KvGroup& group, std::int64_t tokens) {
  HEDDLE_CHECK(group.tokens_per_block > 0 && group.blocks_per_page > 0);
  const std::int64_t kept =
      group.window == 0 ? tokens : std::min(tokens, group.window + group.tokens_per_block);
  return ceil_divide(kept, group.tokens_per_block);
}

bool older(const AdmissionView& a, const AdmissionView& b) {
  return std::tie(a.arrived, a.id) < std::tie(b.arrived, b.id);
}

/// Pages reserved on a device by sequences that are added one by one.
class Reservation {
 public:
  explicit Reservation(std::span<const AdmissionModel> models) {
    for (const AdmissionModel& model : models) {
      models_[model.model] = {.view = &model, .blocks = std::vector<Blocks>(model.kv.size())};
    }
  }

  void add(const AdmissionView& sequence) {
    const std::int64_t length = sequence.tokens + std::min(kExpectedTokens, sequence.remaining);
    const auto found = models_.find(sequence.model);
    HEDDLE_CHECK(found != models_.end());
    PerModel& model = found->second;
    pages_ -= model.pages();
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
      const KvGroup& group = model.view->kv[i];
      model.blocks[i].all += blocks_of(group, length);
      model.blocks[i].more += blocks_of(group, length) - blocks_of(group, sequence.cached);
    }
    pages_ += model.pages();
  }

  [[nodiscard]] std::int64_t pages() const { return pages_; }

 private:
  struct Blocks {
    std::int64_t all = 0;   ///< Of sequences that share nothing.
    std::int64_t more = 0;  ///< Than they have.
  };
  struct PerModel {
    const AdmissionModel* view = nullptr;
    std::vector<Blocks> blocks{};

    [[nodiscard]] std::int64_t pages() const {
      std::int64_t alone = 0;
      std::int64_t grown = view->pages_used.value_or(0);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        alone += ceil_divide(blocks[i].all, view->kv[i].blocks_per_page);
        grown += ceil_divide(blocks[i].more, view->kv[i].blocks_per_page);
      }
      return view->pages_used ? std::min(alone, grown) : alone;
    }
  };

  std::map<ModelId, PerModel> models_{};
  std::int64_t pages_ = 0;
};

}  // namespace

std::int64_t pages_to_load(const Footprint& footprint) {
  return footprint.image_pages + footprint.overhead_pages + footprint.min_kv_pages;
}

std::string describe(const Footprint& footprint) {
  return std::to_string(pages_to_load(footprint)) + " pages (weights " +
         std::to_string(footprint.image_pages) + ", workspace " +
         std::to_string(footprint.overhead_pages) + ", at least " +
         std::to_string(footprint.min_kv_pages) + " of KV)";
}

std::int64_t kv_pages(std::span<const KvGroup> kv, std::span<const std::int64_t> lengths) {
  std::int64_t pages = 0;
  for (const KvGroup& group : kv) {
    std::int64_t blocks = 0;
    for (const std::int64_t tokens : lengths) {
      blocks += blocks_of(group, tokens);
    }
    pages += ceil_divide(blocks, group.blocks_per_page);
  }
  return pages;
}

std::int64_t tokens_that_fit(std::span<const KvGroup> kv, std::int64_t pages, std::int64_t limit) {
  std::int64_t fits = 0;
  std::int64_t beyond = limit + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (kv_pages(kv, {&middle, 1}) <= pages ? fits : beyond) = middle;
  }
  return fits;
}

std::vector<SequenceId> choose_admissions(std::span<const AdmissionView> sequences,
                                          std::span<const AdmissionModel> models,
                                          std::int64_t kv_pages_total) {
  std::vector<AdmissionView> ordered(sequences.begin(), sequences.end());
  std::sort(ordered.begin(), ordered.end(), older);
  Reservation reserved(models);
  for (const AdmissionView& sequence : ordered) {
    if (sequence.admitted) {
      reserved.add(sequence);
    }
  }
  std::vector<SequenceId> admit;
  for (const AdmissionView& sequence : ordered) {
    if (sequence.admitted) {
      continue;
    }
    reserved.add(sequence);
    const bool oldest = sequence.id == ordered.front().id;
    if (reserved.pages() > kv_pages_total && !oldest) {
      break;
    }
    admit.push_back(sequence.id);
  }
  return admit;
}

std::optional<SequenceId> choose_preemption(std::span<const AdmissionView> sequences) {
  const AdmissionView* oldest = nullptr;
  const AdmissionView* newest = nullptr;
  for (const AdmissionView& sequence : sequences) {
    if (!sequence.admitted) {
      continue;
    }
    if (oldest == nullptr || older(sequence, *oldest)) {
      oldest = &sequence;
    }
    if (sequence.cached > 0 && (newest == nullptr || older(*newest, sequence))) {
      newest = &sequence;
    }
  }
  if (newest == nullptr || newest->id == oldest->id) {
    return std::nullopt;
  }
  return newest->id;
}

}  // namespace heddle::policy
