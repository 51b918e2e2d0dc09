#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cluster/registry.h"

/// Records as objects of kind Lease (coordination.k8s.io/v1). The value is an annotation, in
/// base64, and so is the life; the name is the key, written so that Kubernetes takes it; the
/// revision is the resourceVersion. Answers are believed nothing: what does not fit is kCorrupt.
namespace heddle::cluster::kubernetes {

/// An object as the API server has it.
struct Object {
  std::string name{};
  std::string value{};
  Duration life{};  ///< 0: for ever.
  Revision revision = 0;
};

/// One page of a list.
struct Page {
  std::vector<Object> objects{};  ///< Those that are records.
  Revision revision = 0;
  std::string next{};  ///< Fetches the next page; empty: this is the last.
};

/// One line of a watch.
struct Event {
  enum class Kind : std::uint8_t {
    kPut,
    kRemoved,
    kBookmark,  ///< Of the object, only the revision counts.
    kError,
  };
  Kind kind = Kind::kBookmark;
  Object object{};
  bool is_record = false;  ///< The object is one that was made by write_object().
  int code = 0;            ///< Of an error: 410, what was asked for is gone.
  std::string message{};   ///< Of an error.
};

/// kCorrupt where it is no Lease, or none that was made by write_object().
[[nodiscard]] Result<Object> parse_object(std::string_view body);
[[nodiscard]] Result<Page> parse_page(std::string_view body);
[[nodiscard]] Result<Event> parse_event(std::string_view line);
/// What a Status says, or the beginning of the text where it is none.
[[nodiscard]] std::string message_of(std::string_view body);

/// @param group     Value of the label that all records of a registry have.
/// @param expected  0: the object is new.
[[nodiscard]] std::string write_object(const Object& object,
                                       std::string_view group,
                                       Revision expected);
/// Body of a DELETE of the object with this revision.
[[nodiscard]] std::string delete_body(Revision expected);

/// The label.
inline constexpr std::string_view kLabel = "heddle/registry";

/// The name of the object for a key, which has passed check_key(), after `group` and a dot. Words
/// are kept; "/" becomes ".0.", and the words "0", "00"... between dots get one more 0.
[[nodiscard]] std::string name_of(std::string_view group, std::string_view key);
/// The key; nothing where the name is none that name_of() gives.
[[nodiscard]] std::optional<std::string> key_of(std::string_view group, std::string_view name);

}  // namespace heddle::cluster::kubernetes
