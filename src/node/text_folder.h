#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace heddle::node {

/// Where a gateway keeps what hosts send it of models: with its data, else in a folder that goes
/// with this object.
class TextFolder {
 public:
  /// @param data_dir  Empty: there is no place for what outlives the process.
  explicit TextFolder(const std::string& data_dir) {
    if (!data_dir.empty()) {
      path_ = std::filesystem::path(data_dir) / "text";
    } else {
      std::string name = (std::filesystem::temp_directory_path() / "heddle-text-XXXXXX").string();
      if (::mkdtemp(name.data()) != nullptr) {
        path_ = name;
        passing_ = true;
      }
    }
    std::error_code ignored;  // Whoever writes there says what is wrong.
    std::filesystem::create_directories(path_, ignored);
  }
  ~TextFolder() {
    std::error_code ignored;
    if (passing_) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  TextFolder(const TextFolder&) = delete;
  TextFolder& operator=(const TextFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_{};
  bool passing_ = false;
};

}  // namespace heddle::node
