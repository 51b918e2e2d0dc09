#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collective/collective.h"
#include "collective/shared_area.h"

namespace heddle::collective {

/// A group on one host that exchanges data through shared memory: its ranks are threads or
/// processes.
///
/// An exchange goes in rounds of at most one slot: each rank puts its part into its slot, all meet
/// at the barrier, and each reads the slots of all in rank order. The slots of the next round are
/// others, and those of the one after are free by then, since nobody passes the barrier between
/// before all have read; so a round has one barrier. A rank reads ranks times what it writes.
class SharedCollective final : public Collective {
 public:
  /// `rank` in [0, area->ranks()). Each rank is taken once.
  SharedCollective(std::shared_ptr<SharedArea> area, std::int64_t rank);
  /// As above, with memory that another process made and passed; duplicates `fd`.
  /// kInvalidArgument if it is not such memory, or not for a group of `ranks` with a rank `rank`.
  static Result<std::unique_ptr<SharedCollective>> attach(int fd,
                                                          std::int64_t rank,
                                                          std::int64_t ranks);
  /// Abandons the group: without this rank it can do nothing. What all have entered is not
  /// disturbed.
  ~SharedCollective() override;
  SharedCollective(const SharedCollective&) = delete;
  SharedCollective& operator=(const SharedCollective&) = delete;

  [[nodiscard]] const std::shared_ptr<SharedArea>& area() const { return area_; }
  [[nodiscard]] std::int64_t rank() const override { return rank_; }
  [[nodiscard]] std::int64_t size() const override { return area_->ranks(); }
  Result<void> all_reduce(std::span<float> data) override;
  Result<void> all_gather(std::span<float> matrix, std::span<const std::int64_t> ends) override;
  Result<void> agree(std::uint64_t value) override;
  Result<std::int64_t> least(std::int64_t value) override;
  void abandon() override { area_->abandon(); }

 private:
  [[nodiscard]] std::uint32_t turn() const;
  Result<void> meet(const Announcement& own);

  std::shared_ptr<SharedArea> area_;
  std::int64_t rank_;
  std::size_t slot_floats_;
  int spins_;
};

}  // namespace heddle::collective
