#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/gguf_text.h"

namespace heddle::text {

/// The text files of a model: those of its directory, or those that its GGUF file stands for.
/// Errors name the file and not where this machine has it: clients hear of them.
class ModelTexts {
 public:
  /// A directory is not looked at yet; a GGUF file is read, and the error is gguf::text_files's.
  static Result<ModelTexts> open(const std::filesystem::path& model);

  /// The text of a file, by its name or path within the directory. kNotFound where there is none;
  /// kCorrupt where it cannot be read or is too large.
  [[nodiscard]] Result<std::string> read(std::string_view name) const;

  /// The names of the files with this extension in one of its folders, in order.
  [[nodiscard]] std::vector<std::string> names_in(std::string_view folder,
                                                  std::string_view extension) const;

 private:
  std::filesystem::path directory_{};
  std::optional<gguf::TextFiles> made_{};  ///< Of a GGUF file.
};

}  // namespace heddle::text
