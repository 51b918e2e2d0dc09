#include "policy/links.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

/// Hands out what the links have.
class Sharing {
 public:
  Sharing(std::span<const LinkView> links, std::span<const Transfer> transfers)
      : links_(links.begin(), links.end()),
        transfers_(transfers),
        rates_(transfers.size(), 0.0),
        users_(links.size(), 0),
        sated_(transfers.size(), false) {
    std::sort(links_.begin(), links_.end(), [](const LinkView& a, const LinkView& b) {
      return a.id < b.id;
    });
    for (const LinkView& link : links_) {
      left_.push_back(link.bytes_per_second);
    }
    for (const Transfer& transfer : transfers) {
      HEDDLE_CHECK(!transfer.path.empty());
      std::vector<std::size_t>& path = paths_.emplace_back();
      for (const LinkId id : transfer.path) {
        path.push_back(index_of(id));
      }
    }
  }

  std::vector<double> run(LinkRule rule) {
    serve_messages();
    if (rule == LinkRule::kFairShare) {
      serve_fairly(of_classes(LinkClass::kActivation, LinkClass::kPrewarm));
      return rates_;
    }
    serve_by_deadline(of_classes(LinkClass::kActivation, LinkClass::kActivation));
    serve_fairly(of_classes(LinkClass::kKvMove, LinkClass::kKvMove));
    serve_fairly(of_classes(LinkClass::kConsolidation, LinkClass::kConsolidation));
    std::vector<std::size_t> prewarms = of_classes(LinkClass::kPrewarm, LinkClass::kPrewarm);
    std::erase_if(prewarms, [this](std::size_t t) { return meets_activation(t); });
    serve_fairly(std::move(prewarms));
    return rates_;
  }

 private:
  [[nodiscard]] std::size_t index_of(LinkId id) const {
    const auto at = std::lower_bound(
        links_.begin(), links_.end(), id, [](const LinkView& l, LinkId x) { return l.id < x; });
    HEDDLE_CHECK(at != links_.end() && at->id == id);
    return static_cast<std::size_t>(at - links_.begin());
  }

  [[nodiscard]] std::vector<std::size_t> of_classes(LinkClass first, LinkClass last) const {
    std::vector<std::size_t> out;
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      if (transfers_[t].link_class >= first && transfers_[t].link_class <= last) {
        out.push_back(t);
      }
    }
    return out;
  }

  /// Messages cost latency and hardly any bandwidth: each has the part kept for it, whoever else.
  void serve_messages() {
    std::vector<bool> kept(left_.size(), false);
    for (const std::size_t t : of_classes(LinkClass::kStageMessage, LinkClass::kStageMessage)) {
      rates_[t] = std::numeric_limits<double>::max();
      for (const std::size_t l : paths_[t]) {
        rates_[t] = std::min(rates_[t], links_[l].bytes_per_second * kMessagePart);
        kept[l] = true;
      }
    }
    for (std::size_t l = 0; l < left_.size(); ++l) {
      left_[l] *= kept[l] ? 1.0 - kMessagePart : 1.0;
    }
  }

  void serve_by_deadline(std::vector<std::size_t> order) {
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return sends_before(transfers_[a], transfers_[b]);
    });
    for (auto first = order.begin(); first != order.end();) {
      const Instant due = transfers_[*first].deadline;
      const auto next = std::find_if(
          first, order.end(), [&](std::size_t t) { return transfers_[t].deadline != due; });
      serve_fairly({first, next});
      first = next;
    }
  }

  /// Max-min fairness: all rise together until a link is full, or one has what it can use; who
  /// crosses it, or that one, stays, the others go on.
  void serve_fairly(std::vector<std::size_t> rising) {
    std::fill(users_.begin(), users_.end(), 0);
    for (const std::size_t t : rising) {
      for (const std::size_t l : paths_[t]) {
        ++users_[l];
      }
    }
    while (!rising.empty()) {
      std::size_t narrowest = left_.size();
      double step = std::numeric_limits<double>::max();
      for (const std::size_t t : rising) {
        for (const std::size_t l : paths_[t]) {
          const double each = left_[l] / static_cast<double>(users_[l]);
          if (each < step || (each == step && l < narrowest)) {
            step = each;
            narrowest = l;
          }
        }
      }
      const double rise = std::min(step, least_usable(rising));
      for (const std::size_t t : rising) {
        sated_[t] = usable(t) <= rise;
        give(t, rise);
      }
      if (rise == step) {
        left_[narrowest] = 0.0;  // Exactly, whatever the rounding.
      }
      std::erase_if(rising, [&](std::size_t t) {
        const bool stays =
            sated_[t] || std::any_of(paths_[t].begin(), paths_[t].end(), [this](std::size_t l) {
              return left_[l] <= 0.0;
            });
        for (const std::size_t l : paths_[t]) {
          users_[l] -= stays ? 1 : 0;
        }
        return stays;
      });
    }
  }

  /// What it could use beyond what it has.
  [[nodiscard]] double usable(std::size_t t) const {
    return std::max(transfers_[t].bytes_per_second_max - rates_[t], 0.0);
  }
  [[nodiscard]] double least_usable(const std::vector<std::size_t>& rising) const {
    double least = std::numeric_limits<double>::max();
    for (const std::size_t t : rising) {
      least = std::min(least, usable(t));
    }
    return least;
  }

  void give(std::size_t t, double rate) {
    rates_[t] += rate;
    for (const std::size_t l : paths_[t]) {
      left_[l] = std::max(0.0, left_[l] - rate);
    }
  }

  [[nodiscard]] bool meets_activation(std::size_t prewarm) const {
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      if (transfers_[t].link_class == LinkClass::kActivation &&
          std::find_first_of(
              paths_[t].begin(), paths_[t].end(), paths_[prewarm].begin(), paths_[prewarm].end()) !=
              paths_[t].end()) {
        return true;
      }
    }
    return false;
  }

  std::vector<LinkView> links_;  ///< By id.
  std::span<const Transfer> transfers_;
  std::vector<std::vector<std::size_t>> paths_{};
  std::vector<double> left_{};  ///< Of each link.
  std::vector<double> rates_;
  std::vector<std::int64_t> users_;  ///< Rising transfers on each link.
  std::vector<bool> sated_;          ///< Transfers that have all they can use.
};

}  // namespace

std::string_view name(LinkClass link_class) {
  switch (link_class) {
    case LinkClass::kStageMessage:
      return "stage_message";
    case LinkClass::kActivation:
      return "activation";
    case LinkClass::kKvMove:
      return "kv_move";
    case LinkClass::kConsolidation:
      return "consolidation";
    case LinkClass::kPrewarm:
      return "prewarm";
  }
  return "?";
}

std::vector<double> share_links(std::span<const LinkView> links,
                                std::span<const Transfer> transfers,
                                LinkRule rule) {
  return Sharing(links, transfers).run(rule);
}

PieceLimits piece_limits(LinkClass link_class) {
  constexpr std::int64_t kMebi = 1024 * 1024;
  switch (link_class) {
    case LinkClass::kStageMessage:
      return {.bytes = kMebi, .outstanding = 4};
    case LinkClass::kActivation:
      return {.bytes = 32 * kMebi, .outstanding = 4};
    case LinkClass::kKvMove:
      return {.bytes = 8 * kMebi, .outstanding = 2};
    case LinkClass::kConsolidation:
    case LinkClass::kPrewarm:
      return {.bytes = 16 * kMebi, .outstanding = 2};
  }
  return {};
}

bool sends_before(const Transfer& a, const Transfer& b) {
  const auto deadline = [](const Transfer& t) {
    return t.link_class == LinkClass::kActivation ? t.deadline : Instant{};
  };
  return std::tuple(a.link_class, deadline(a), a.id) < std::tuple(b.link_class, deadline(b), b.id);
}

}  // namespace heddle::policy
