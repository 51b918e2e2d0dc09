#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/batching.h"

namespace heddle::policy {

/// Tokens of an answer that admission reserves pages for; what comes beyond them is best effort.
inline constexpr std::int64_t kExpectedTokens = 20;

/// Where there is no room for an answer of this length, loading a model makes no sense; an answer
/// whose length the client left open gets at least as much.
inline constexpr std::int64_t kUsefulTokens = 256;

/// How one KV group of a model lies in pages; plain numbers, from the geometry that memory/ chose.
struct KvGroup {
  std::int64_t tokens_per_block = 0;
  std::int64_t blocks_per_page = 0;
  std::int64_t window = 0;  ///< Only the newest `window` tokens are kept; 0 keeps all.
  friend bool operator==(const KvGroup&, const KvGroup&) = default;
};

/// The pages that a model needs on a device, by what they are for.
struct Footprint {
  std::int64_t image_pages = 0;     ///< Weights.
  std::int64_t overhead_pages = 0;  ///< Workspace: a device has the largest of its models', once.
  std::int64_t min_kv_pages = 0;    ///< The smallest KV cache with which loading it makes sense.
  /// For CUDA graphs of its steps, where the device records, while nobody needs the pages; 0: its
  /// steps are not recorded. As with the workspace, a device has the largest of its models'.
  std::int64_t graph_pages = 0;
  std::vector<KvGroup> kv{};  ///< One per KV group.
  friend bool operator==(const Footprint&, const Footprint&) = default;
};

/// Pages that must be had before the model is loaded.
[[nodiscard]] std::int64_t pages_to_load(const Footprint& footprint);

/// The same for people: "32 pages (weights 22, workspace 6, at least 4 of KV)".
[[nodiscard]] std::string describe(const Footprint& footprint);

/// Pages that the KV of sequences of these lengths [tokens] needs at least: blocks are packed.
[[nodiscard]] std::int64_t kv_pages(std::span<const KvGroup> kv,
                                    std::span<const std::int64_t> lengths);

/// The longest sequence (prompt and answer together) whose KV fits in `pages`, at most `limit`.
[[nodiscard]] std::int64_t tokens_that_fit(std::span<const KvGroup> kv,
                                           std::int64_t pages,
                                           std::int64_t limit);

/// What admission knows of one sequence of a device.
struct AdmissionView {
  SequenceId id{};
  ModelId model{};
  std::int32_t priority = 0;  ///< Lower is admitted first.
  Instant arrived{};
  bool admitted = false;
  std::int64_t tokens = 0;     ///< Prompt and what was generated so far.
  std::int64_t cached = 0;     ///< Of these, how many have KV: whether a preemption frees pages.
  std::int64_t remaining = 0;  ///< Tokens it may still generate.
};

/// A resident model as admission sees it.
struct AdmissionModel {
  ModelId model{};
  std::span<const KvGroup> kv{};
  /// That the KV of its sequences has now; blocks that several of them share count once. nullopt:
  /// nobody counted.
  std::optional<std::int64_t> pages_used{};
  /// That all its sequences together may have, one alone excepted; nullopt: what there is.
  std::optional<std::int64_t> most_pages{};
  bool apart = false;  ///< It has those for itself, and takes none of what there is.
};

/// The KV that a device's admitted sequences may come to need, at prompt + expected output, and
/// what more fits beside it. A model needs what it would if its sequences shared nothing, or what
/// it uses and they will grow by if that is less. Views and models outlive it.
class AdmissionRoom {
 public:
  /// With those of `sequences` that are admitted already.
  AdmissionRoom(std::span<const AdmissionView> sequences,
                std::span<const AdmissionModel> models,
                std::int64_t kv_pages_total);
  ~AdmissionRoom();
  AdmissionRoom(const AdmissionRoom&) = delete;
  AdmissionRoom& operator=(const AdmissionRoom&) = delete;

  enum class Answer : std::uint8_t {
    kFits,       ///< It is counted from now on.
    kNoPages,    ///< The device has not enough.
    kModelFull,  ///< Its model may not have as many.
  };
  Answer admit(const AdmissionView& sequence);
  /// Counts it whatever there is.
  void force(const AdmissionView& sequence);

  /// What is left [pages], 0 or more.
  [[nodiscard]] std::int64_t left() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Pages are counted in so many parts where one request is weighed alone, since its blocks will
/// share pages with others'.
inline constexpr std::int64_t kPageParts = std::int64_t{1} << 20;

/// The KV of one sequence at prompt + expected output [1 / kPageParts pages].
[[nodiscard]] std::int64_t kv_parts(std::span<const KvGroup> kv, const AdmissionView& sequence);

/// The sequences to admit now by priority and age, without overtaking but of those whose model is
/// full: each while there is room in `kv_pages_total`, what the models of the device leave. The
/// first of all is always admitted: it may run alone.
/// Pure; independent of the order of `sequences` (ties by id).
[[nodiscard]] std::vector<SequenceId> choose_admissions(std::span<const AdmissionView> sequences,
                                                        std::span<const AdmissionModel> models,
                                                        std::int64_t kv_pages_total);

/// Who gives up its pages when one starved: the newest admitted sequence that holds any; never the
/// oldest admitted of the device, so that everything admitted finishes in the end. nullopt when
/// there is nobody else. Pure; ties by id.
[[nodiscard]] std::optional<SequenceId> choose_preemption(std::span<const AdmissionView> sequences);

}  // namespace heddle::policy
