#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/describe.h"
#include "base/result.h"

/// Described messages (base/describe.h) as JSON on one line, for event logs. It holds every field
/// by name, in the order of its description, numbers as they are and times in nanoseconds:
///
///     {"RequestArrived":{"request":1,"model":2}}
namespace heddle {

/// Appends JSON of a described value to `out`.
void write_json_line(const Type& type, const void* value, std::string& out);

/// Reads what write_json_line and literals around it have written, and nothing else: every field,
/// in order. After the first mismatch everything reads as empty.
class JsonLineReader {
 public:
  explicit JsonLineReader(std::string_view text) : rest_(text), size_(text.size()) {}

  /// Passes over `literal`, which must come next.
  void expect(std::string_view literal);
  /// The next value, of this type; `value` is as it is by default.
  void read(const Type& type, void* value);
  /// kCorrupt, with what was expected in which column, if anything went wrong; all has been read.
  [[nodiscard]] std::optional<Error> finish();

 private:
  bool accept(std::string_view literal);
  void fail(std::string_view expected);
  template <class T>
  void read_as(void* value);
  void read_number(const Type& type, void* value);
  void read_text(std::string& value);
  void read_struct(const Type& type, void* value);
  void read_list(const Type& type, void* value);
  void read_variant(const Type& type, void* value);

  std::string_view rest_;
  std::size_t size_;
  std::optional<Error> error_{};
};

}  // namespace heddle
