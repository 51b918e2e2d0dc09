#include "base/tunables.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

namespace heddle {
namespace {

constexpr std::string_view kTunePrefix = "HEDDLE_TUNE_";

constexpr std::array kTunables{
    Tunable{Tuned::kThinBeforeBlas,
            "HEDDLE_TUNE_THIN_BEFORE_BLAS",
            8,
            0,
            32,
            1,
            "tokens up to which our thin kernels take a product from cuBLASLt"},
    Tunable{Tuned::kNarrowBlocks,
            "HEDDLE_TUNE_NARROW_BLOCKS",
            4,
            1,
            64,
            1,
            "blocks of decode attention that a multiprocessor is to have, by splitting"},
    Tunable{Tuned::kWideBlocks,
            "HEDDLE_TUNE_WIDE_BLOCKS",
            2,
            1,
            64,
            1,
            "the same of prefill attention"},
    Tunable{Tuned::kSplitSteps,
            "HEDDLE_TUNE_SPLIT_STEPS",
            2,
            1,
            64,
            1,
            "steps of attention that a split has at least"},
    Tunable{Tuned::kAttentionParts,
            "HEDDLE_TUNE_ATTENTION_PARTS",
            8,
            1,
            64,
            1,
            "parts of attention for each token that the workspace has room for"},
    Tunable{Tuned::kPartsMib,
            "HEDDLE_TUNE_PARTS_MIB",
            64,
            1,
            1024,
            1,
            "MiB that those parts take at most"},
    Tunable{Tuned::kBlasWorkspaceMib,
            "HEDDLE_TUNE_BLAS_WORKSPACE_MIB",
            32,
            0,
            1024,
            1,
            "MiB of scratch that a product of cuBLASLt may take"},
    Tunable{Tuned::kNormShortColumns,
            "HEDDLE_TUNE_NORM_SHORT_COLUMNS",
            512,
            0,
            65536,
            1,
            "columns up to which a warp does a norm, not a block"},
    Tunable{Tuned::kNormThreads,
            "HEDDLE_TUNE_NORM_THREADS",
            256,
            32,
            256,
            32,
            "threads of a block that does a norm"},
    Tunable{Tuned::kRowThreads,
            "HEDDLE_TUNE_ROW_THREADS",
            256,
            32,
            256,
            32,
            "threads of a block of what moves rows"},
    Tunable{Tuned::kRowBlocks,
            "HEDDLE_TUNE_ROW_BLOCKS",
            64,
            1,
            1024,
            1,
            "blocks at most that share a row"},
    Tunable{Tuned::kPieceMib,
            "HEDDLE_TUNE_PIECE_MIB",
            32,
            2,
            4096,
            1,
            "MiB of an image that are copied between two looks at what is more urgent"},
    Tunable{Tuned::kUnmapMib,
            "HEDDLE_TUNE_UNMAP_MIB",
            16,
            2,
            4096,
            1,
            "MiB of a window that are unmapped between two such looks"},
    Tunable{Tuned::kNormTokens,
            "HEDDLE_TUNE_NORM_TOKENS",
            2,
            0,
            8,
            1,
            "tokens up to which a thin product's last block does the norm behind it"},
    Tunable{Tuned::kPieces,
            "HEDDLE_TUNE_PIECES",
            2,
            1,
            2,
            1,
            "pieces of a load that are copied at once"},
    Tunable{Tuned::kOneShotKib,
            "HEDDLE_TUNE_ONE_SHOT_KIB",
            256,
            0,
            1048576,
            1,
            "KiB up to which each of three ranks or more sums all of an all-reduce itself"},
    Tunable{Tuned::kBlasCandidates,
            "HEDDLE_TUNE_BLAS_CANDIDATES",
            4,
            1,
            64,
            1,
            "ways of cuBLASLt that are timed for a product; 1: its first advice is taken"},
    Tunable{Tuned::kSurveyMs,
            "HEDDLE_TUNE_SURVEY_MS",
            40,
            1,
            10000,
            1,
            "ms that timing the products of a model takes at most when it is opened"},
    Tunable{
        Tuned::kUnpackedTokens,
        "HEDDLE_TUNE_UNPACKED_TOKENS",
        128,
        0,
        4096,
        1,
        "tokens up to which our kernels multiply with blocks, not cuBLASLt with slices of them"},
    Tunable{Tuned::kSkinnyBeforeBlas,
            "HEDDLE_TUNE_SKINNY_BEFORE_BLAS",
            0,
            0,
            64,
            1,
            "tokens up to which our skinny kernels take a product from cuBLASLt untimed"},
    Tunable{Tuned::kSkinnyBlocks,
            "HEDDLE_TUNE_SKINNY_BLOCKS",
            2,
            1,
            4,
            1,
            "blocks of a skinny kernel that a multiprocessor is to have at most"},
    Tunable{Tuned::kWideRows,
            "HEDDLE_TUNE_WIDE_ROWS",
            64,
            64,
            128,
            64,
            "rows of a block of prefill attention, for heads of 64 and 128"},
    Tunable{Tuned::kWgmmaAttention,
            "HEDDLE_TUNE_WGMMA_ATTENTION",
            0,
            0,
            1,
            1,
            "1: prefill attention by products of warpgroups, on GPUs of 9.0"},
};

std::optional<std::int64_t> value_of(const Tunable& tunable, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = status == std::errc() && end == text.data() + text.size() &&
                    value >= tunable.least && value <= tunable.most && value % tunable.step == 0;
  return good ? std::optional(value) : std::nullopt;
}

Error no_such_tunable(std::string_view name) {
  std::string names;
  for (const Tunable& each : kTunables) {
    names += std::string(names.empty() ? "" : ", ") + each.name;
  }
  return {Code::kInvalidArgument, std::string(name) + " is no tunable; there are " + names};
}

Error no_such_value(const Tunable& tunable, std::string_view value) {
  std::string right =
      "an integer from " + std::to_string(tunable.least) + " to " + std::to_string(tunable.most);
  if (tunable.step != 1) {
    right += ", a multiple of " + std::to_string(tunable.step);
  }
  return {Code::kInvalidArgument,
          std::string(tunable.name) + "=" + std::string(value) + ": wanted is " + right + " (" +
              tunable.what + ")"};
}

}  // namespace

Tunables::Tunables() {
  static_assert(std::tuple_size_v<decltype(values_)> == kTunables.size());
  for (const Tunable& each : kTunables) {
    values_[static_cast<std::size_t>(each.which)] = each.usual;
  }
}

Result<Tunables> Tunables::read(std::span<const std::string> environment) {
  Tunables read;
  for (const std::string_view entry : environment) {
    if (!entry.starts_with(kTunePrefix)) {
      continue;
    }
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = entry.substr(0, equals);
    const std::string_view text = entry.substr(std::min(equals + 1, entry.size()));
    const auto* const found = std::find_if(
        kTunables.begin(), kTunables.end(), [&](const Tunable& each) { return name == each.name; });
    if (found == kTunables.end()) {
      return no_such_tunable(name);
    }
    const std::optional<std::int64_t> value = value_of(*found, text);
    if (!value) {
      return no_such_value(*found, text);
    }
    read.values_[static_cast<std::size_t>(found->which)] = *value;
  }
  return read;
}

std::span<const Tunable> all_tunables() {
  return kTunables;
}

Result<Tunables> read_tunables() {
  std::vector<std::string> environment;
  for (char* const* entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return Tunables::read(environment);
}

std::int64_t tuned(Tuned which) {
  static const Tunables kValues = [] {
    Result<Tunables> read = read_tunables();
    if (!read) {
      std::fprintf(stderr, "%s\n", read.error().message.c_str());
      std::fflush(nullptr);
      std::_Exit(2);
    }
    return *read;
  }();
  return kValues.get(which);
}

}  // namespace heddle
