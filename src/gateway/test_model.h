#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "spec/json_writer.h"

namespace heddle::gateway {

/// The directory of a model whose tokens are the bytes 0 to 255 and an end of turn, 256. It has no
/// weights. Gone when this is.
class TestModel {
 public:
  TestModel() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle_model_XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    write("tokenizer.json", tokenizer());
    write("tokenizer_config.json",
          R"({"eos_token": "<eos>", "chat_template": "{% for m in messages %})"
          R"({% if m.role == 'bad' %})"
          R"({{ raise_exception('no such role') }}{% endif %}{{ m.role }}: {{ m.content }}\n)"
          R"({% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{{ mood or '' }}"})");
    write("config.json",
          R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257,
              "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 200000, "rms_norm_eps": 1e-05, "eos_token_id": 256})");
  }
  ~TestModel() { std::filesystem::remove_all(directory_); }
  TestModel(const TestModel&) = delete;
  TestModel& operator=(const TestModel&) = delete;

  /// Makes it an encoder of 40 positions, whose tokens stand between 1 and 2, or one that scores.
  void make_encoder(bool scores) const {
    write("config.json",
          R"({"architectures": [")" +
              std::string(scores ? "BertForSequenceClassification" : "BertModel") +
              R"("], "model_type": "bert", "vocab_size": 257, "num_labels": 1,
              "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
              "num_attention_heads": 4, "max_position_embeddings": 40})");
    std::string text = tokenizer();
    const std::string none = R"("post_processor": null)";
    const auto special = [](const std::string& id, int type) {
      return R"({"SpecialToken": {"id": ")" + id + R"(", "type_id": )" + std::to_string(type) +
             "}}";
    };
    const std::string single =
        special("b", 0) + R"(, {"Sequence": {"id": "A", "type_id": 0}}, )" + special("e", 0);
    text.replace(text.find(none),
                 none.size(),
                 R"("post_processor": {"type": "TemplateProcessing", "single": [)" + single +
                     R"(], "pair": [)" + single + R"(, {"Sequence": {"id": "B", "type_id": 1}}, )" +
                     special("e", 1) +
                     R"(], "special_tokens": {"b": {"id": "b", "ids": [1], "tokens": ["b"]},
                         "e": {"id": "e", "ids": [2], "tokens": ["e"]}}})");
    write("tokenizer.json", text);
  }

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }

 private:
  /// The character that byte-level tokenizers write for a byte: itself where it is printable.
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
  static bool printable(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  }

  static std::string tokenizer() {
    spec::JsonWriter vocab;
    vocab.begin_object();
    for (int byte = 0; byte < 256; ++byte) {
      vocab.key(letter(byte)).integer(byte);
    }
    vocab.end_object();
    const std::string level =
        R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,)"
        R"( "use_regex": false})";
    return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 256,
        "content": "<eos>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}], "normalizer": null, "pre_tokenizer": )" +
           level + R"(, "post_processor": null, "decoder": )" + level +
           R"(, "model": {"type": "BPE", "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
        "byte_fallback": false, "ignore_merges": false, "merges": [], "vocab": )" +
           vocab.text() + "}}";
  }

  std::filesystem::path directory_;
};

}  // namespace heddle::gateway
