#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace heddle::worker {

/// Bytes [begin, end) of an image.
struct ImagePart {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  friend auto operator<=>(const ImagePart&, const ImagePart&) = default;
};

/// The bytes of one image on their way to a device over several paths at once. Whichever path is
/// free takes the next part, so that paths of unequal speed end together; parts are taken in order,
/// so that what is in place from the front on, which is what layers wait for, is never far behind
/// what was copied. Not thread safe.
class ImageParts {
 public:
  explicit ImageParts(std::uint64_t bytes) : bytes_(bytes) {}

  /// The next part, of at most `most` bytes: of what was given back, else before `limit` and not
  /// less than `least`. Nothing where there is none.
  std::optional<ImagePart> take(std::uint64_t most, std::uint64_t limit, std::uint64_t least = 1);
  /// Whether take() would give something.
  [[nodiscard]] bool has(std::uint64_t limit, std::uint64_t least = 1) const;

  /// A part that was taken is in place.
  void put_in_place(const ImagePart& part);
  /// A part that was taken was not copied: another path takes it.
  void give_back(const ImagePart& part);

  /// Bytes in place from the front on. Never goes back.
  [[nodiscard]] std::uint64_t in_place() const { return in_place_; }
  [[nodiscard]] bool complete() const { return in_place_ == bytes_; }

 private:
  std::uint64_t bytes_;
  std::uint64_t next_ = 0;                          ///< Nothing from here on was ever taken.
  std::uint64_t in_place_ = 0;                      ///< All before it is.
  std::map<std::uint64_t, std::uint64_t> ahead_{};  ///< In place behind a gap: begin to end.
  std::set<ImagePart> returned_{};
};

}  // namespace heddle::worker
