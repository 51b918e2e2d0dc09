#pragma once

#include <span>
#include <string_view>

namespace heddle::gateway {

/// A file that is part of the program.
struct WebFile {
  std::string_view name;
  std::string_view text;
};

/// The page for browsers, the files of web/ (the build makes the source of this).
[[nodiscard]] std::span<const WebFile> web_files();

}  // namespace heddle::gateway
