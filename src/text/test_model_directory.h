#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace heddle::text {

/// The files of a model whose tokens are `count` bytes from `first` on, then an end of sequence and
/// a special marker `<tool>`. Gone when this is.
class ByteModelDirectory {
 public:
  explicit ByteModelDirectory(int first = 0, int count = 256) {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle_text_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    write("tokenizer.json", tokenizer(first, count));
    write("tokenizer_config.json", R"({"eos_token": "<eos>"})");
    write("config.json", R"({"eos_token_id": )" + std::to_string(count) + "}");
  }
  ~ByteModelDirectory() { std::filesystem::remove_all(path_); }
  ByteModelDirectory(const ByteModelDirectory&) = delete;
  ByteModelDirectory& operator=(const ByteModelDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  static bool printable(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  }
  /// The character that byte-level tokenizers write for a byte.
  static std::string letter(int byte) {
    int shift = 0;
    for (int b = 0; b < byte; ++b) {
      shift += printable(b) ? 0 : 1;
    }
    const int code = printable(byte) ? byte : 256 + shift;
    if (code < 0x80) {
      return {static_cast<char>(code)};
    }
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  }
  static std::string tokenizer(int first, int count) {
    const nlohmann::json level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", false}};
    nlohmann::json added = nlohmann::json::array();
    for (const auto& [id, content] : {std::pair(count, "<eos>"), std::pair(count + 1, "<tool>")}) {
      added.push_back({{"id", id},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    nlohmann::json vocab = nlohmann::json::object();
    for (int id = 0; id < count; ++id) {
      vocab[letter(first + id)] = id;
    }
    const nlohmann::json file = {{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", added},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", level},
                                 {"post_processor", nullptr},
                                 {"decoder", level},
                                 {"model",
                                  {{"type", "BPE"},
                                   {"dropout", nullptr},
                                   {"unk_token", nullptr},
                                   {"continuing_subword_prefix", nullptr},
                                   {"end_of_word_suffix", nullptr},
                                   {"fuse_unk", false},
                                   {"byte_fallback", false},
                                   {"ignore_merges", false},
                                   {"merges", nlohmann::json::array()},
                                   {"vocab", vocab}}}};
    return file.dump();
  }

  std::filesystem::path path_;
};

}  // namespace heddle::text
