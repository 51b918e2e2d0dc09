#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace heddle::api {

/// A JSON object as its text, for changes that leave every other byte as it was. Finds the members
/// of the outermost object; what is inside their values is only skipped, and judged by whoever
/// reads it.
class ObjectText {
 public:
  struct Member {
    std::string key{};  ///< Escapes resolved.
    std::size_t key_begin = 0;
    std::size_t value_begin = 0;
    std::size_t value_end = 0;
  };

  /// `text` outlives this. kInvalidArgument, with the offset, for what is no object, or has
  /// more than 4,096 members.
  static Result<ObjectText> scan(std::string_view text);

  /// In the order of the text.
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  /// The text of a member's value; nothing where there is none. Of keys that occur twice the last
  /// one, as most readers take it.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view key) const;
  /// The member's value where that is a string, escapes resolved.
  [[nodiscard]] std::optional<std::string> string(std::string_view key) const;
  /// Whether the member is `true`.
  [[nodiscard]] bool is_true(std::string_view key) const { return find(key) == "true"; }

  /// The text without the members called by `strip`, and with those of `set` (keys and JSON values)
  /// set: in place of the members of that name, else as new last ones, in their order.
  [[nodiscard]] std::string edited(
      const std::vector<std::string>& strip,
      const std::vector<std::pair<std::string, std::string>>& set) const;

 private:
  explicit ObjectText(std::string_view text) : text_(text) {}

  std::string_view text_;
  std::size_t close_ = 0;  ///< Where the object's '}' is.
  std::vector<Member> members_{};
};

}  // namespace heddle::api
