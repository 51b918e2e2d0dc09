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

bool first(const AdmissionView& a, const AdmissionView& b) {
  return std::tie(a.priority, a.arrived, a.id) < std::tie(b.priority, b.arrived, b.id);
}

std::int64_t expected_length(const AdmissionView& sequence) {
  return sequence.tokens + std::min(kExpectedTokens, sequence.remaining);
}

}  // namespace

class AdmissionRoom::Impl {
 public:
  Impl(std::span<const AdmissionModel> models, std::int64_t total) : total_(total) {
    for (const AdmissionModel& model : models) {
      models_[model.model] = {.view = &model, .blocks = std::vector<Blocks>(model.kv.size())};
    }
  }

  Answer admit(const AdmissionView& sequence) {
    const PerModel& model = models_.at(sequence.model);
    add(sequence, +1);
    const std::optional<std::int64_t> most = model.view->most_pages;
    const bool full = most && model.sequences > 1 && model.pages() > *most;
    if ((pages_ <= total_ || model.view->apart) && !full) {
      return Answer::kFits;
    }
    add(sequence, -1);
    return full ? Answer::kModelFull : Answer::kNoPages;
  }

  /// Counts a sequence, or (`sign` -1) takes it out again.
  void add(const AdmissionView& sequence, std::int64_t sign) {
    const std::int64_t length = expected_length(sequence);
    const auto found = models_.find(sequence.model);
    HEDDLE_CHECK(found != models_.end());
    PerModel& model = found->second;
    pages_ -= model.common_pages();
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
      const KvGroup& group = model.view->kv[i];
      const std::int64_t more = blocks_of(group, length) - blocks_of(group, sequence.cached);
      model.blocks[i].all += sign * blocks_of(group, length);
      model.blocks[i].more += sign * more;
    }
    model.sequences += sign;
    pages_ += model.common_pages();
  }

  [[nodiscard]] std::int64_t left() const { return std::max<std::int64_t>(total_ - pages_, 0); }

 private:
  struct Blocks {
    std::int64_t all = 0;   ///< Of sequences that share nothing.
    std::int64_t more = 0;  ///< Than they have.
  };
  struct PerModel {
    const AdmissionModel* view = nullptr;
    std::vector<Blocks> blocks{};
    std::int64_t sequences = 0;

    [[nodiscard]] std::int64_t pages() const {
      std::int64_t alone = 0;
      std::int64_t grown = view->pages_used.value_or(0);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        alone += ceil_divide(blocks[i].all, view->kv[i].blocks_per_page);
        grown += ceil_divide(blocks[i].more, view->kv[i].blocks_per_page);
      }
      return view->pages_used ? std::min(alone, grown) : alone;
    }
    [[nodiscard]] std::int64_t common_pages() const { return view->apart ? 0 : pages(); }
  };

  std::int64_t total_;
  std::map<ModelId, PerModel> models_{};
  std::int64_t pages_ = 0;
};

AdmissionRoom::AdmissionRoom(std::span<const AdmissionView> sequences,
                             std::span<const AdmissionModel> models,
                             std::int64_t kv_pages_total)
    : impl_(std::make_unique<Impl>(models, kv_pages_total)) {
  for (const AdmissionView& sequence : sequences) {
    if (sequence.admitted) {
      impl_->add(sequence, +1);
    }
  }
}

AdmissionRoom::~AdmissionRoom() = default;

AdmissionRoom::Answer AdmissionRoom::admit(const AdmissionView& sequence) {
  return impl_->admit(sequence);
}

void AdmissionRoom::force(const AdmissionView& sequence) {
  impl_->add(sequence, +1);
}

std::int64_t AdmissionRoom::left() const {
  return impl_->left();
}

std::int64_t kv_parts(std::span<const KvGroup> kv, const AdmissionView& sequence) {
  std::int64_t parts = 0;
  for (const KvGroup& group : kv) {
    const std::int64_t blocks = blocks_of(group, expected_length(sequence));
    parts += ceil_divide(blocks * kPageParts, group.blocks_per_page);
  }
  return parts;
}

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
  std::sort(ordered.begin(), ordered.end(), first);
  AdmissionRoom room(sequences, models, kv_pages_total);
  std::vector<SequenceId> admit;
  for (const AdmissionView& sequence : ordered) {
    if (sequence.admitted) {
      continue;
    }
    if (sequence.id == ordered.front().id) {
      room.force(sequence);
    } else if (const auto answer = room.admit(sequence);
               answer == AdmissionRoom::Answer::kNoPages) {
      break;
    } else if (answer == AdmissionRoom::Answer::kModelFull) {
      continue;
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
