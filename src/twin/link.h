#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "twin/agenda.h"
#include "twin/faults.h"

namespace heddle::twin {

/// The link over which images are copied to a device, as the worker's mapper uses it: one copy
/// after the other, urgent ones first, piece by piece.
class Link {
 public:
  using OnCopied = std::function<void(ModelId, std::uint64_t bytes)>;

  /// `rate` in bytes/s, > 0. `agenda` and `faults` outlive it.
  Link(double rate, Agenda& agenda, Faults& faults, OnCopied on_copied)
      : rate_(rate), agenda_(agenda), faults_(faults), on_copied_(std::move(on_copied)) {}

  /// Begins to copy an image of `bytes`, of which the first `ready` are there.
  void begin(ModelId model, std::uint64_t bytes, std::uint64_t ready);
  /// So many are there.
  void allow(ModelId model, std::uint64_t ready);
  void prioritise(ModelId model);
  /// It is wanted no more.
  void stop(ModelId model);

 private:
  struct Copy {
    ModelId model{};
    std::uint64_t bytes = 0;
    std::uint64_t ready = 0;
    std::uint64_t done = 0;
    bool urgent = false;
    std::uint64_t number = 0;  ///< Of the begin() that made it.
  };
  [[nodiscard]] Copy* find(ModelId model);
  [[nodiscard]] Copy* next();
  void go_on();

  double rate_;
  Agenda& agenda_;
  Faults& faults_;
  OnCopied on_copied_;
  std::vector<Copy> copies_{};  ///< In the order in which they began.
  bool busy_ = false;           ///< A piece is on its way.
  std::uint64_t begun_ = 0;
};

}  // namespace heddle::twin
