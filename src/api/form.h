#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Forms as bodies of requests: multipart/form-data (RFC 7578).
namespace heddle::api {

/// A form has so many parts at most; what stands behind them is not looked at.
inline constexpr std::size_t kFormPartsMax = 64;

/// A field of a form, or a file.
struct FormPart {
  std::string_view name{};
  std::string_view file_name{};  ///< As the client calls its file; empty for a field.
  std::string_view value{};      ///< A piece of the body.
};

/// A parameter of a header's value, such as the boundary in `multipart/form-data; boundary="x"`;
/// empty where it is not there.
[[nodiscard]] std::string_view header_parameter(std::string_view value, std::string_view name);

/// Whether a body of this type is a form.
[[nodiscard]] bool is_form(std::string_view content_type);

/// The parts of a form with this boundary, in their order; those that were cut off are left out.
[[nodiscard]] std::vector<FormPart> form_parts(std::string_view body, std::string_view boundary);

}  // namespace heddle::api
