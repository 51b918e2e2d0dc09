#include "gguf/gguf_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/base64.h"
#include "gguf/architecture.h"
#include "gguf/gguf_encoder.h"
#include "gguf/gguf_model.h"
#include "gguf/metadata_fields.h"
#include "gguf/pre_tokenizers.h"
#include "gguf/score_merges.h"
#include "gguf/token_types.h"
#include "spec/json_writer.h"

namespace heddle::gguf {
namespace {

using spec::JsonWriter;

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space to SentencePiece.

/// Whether bytes begin as a table of characters of SentencePiece: the bytes of its trie, of units
/// of 32 bits, then as many.
bool is_table(std::string_view bytes) {
  std::uint32_t trie = 0;
  if (bytes.size() < sizeof(trie)) {
    return false;
  }
  std::memcpy(&trie, bytes.data(), sizeof(trie));
  return trie > 0 && trie % sizeof(trie) == 0 && trie <= bytes.size() - sizeof(trie);
}

/// Writes tokenizer.json and tokenizer_config.json.
class TokenizerWriter {
 public:
  explicit TokenizerWriter(const GgufFile& file) : file_(file), fields_(file) {}

  Result<TextFiles> write() && {
    read_tokens();
    const std::string kind = fields_.text("tokenizer.ggml.model");
    TextFiles files;
    if (fields_.ok() && kind == "gpt2") {
      files["tokenizer.json"] = byte_level();
    } else if (fields_.ok() && kind == "llama") {
      files["tokenizer.json"] = with_fallback(false);
    } else if (fields_.ok() && kind == "gemma4") {
      files["tokenizer.json"] = with_fallback(true);
    } else if (fields_.ok() && kind == "bert") {
      files["tokenizer.json"] = word_pieces();
    } else if (fields_.ok() && kind == "t5") {
      files["tokenizer.json"] = unigram();
    } else {
      fields_.reject("tokenizer.ggml.model",
                     fmt::format("built in are gpt2, llama, gemma4, bert and t5; {}", kElsewhere),
                     Code::kInvalidArgument);
    }
    files["tokenizer_config.json"] = config();
    return fields_.ok() ? Result<TextFiles>(std::move(files)) : fields_.status().error();
  }

 private:
  void read_tokens() {
    const Array* tokens = fields_.texts(kTokens);
    if (tokens == nullptr || tokens->count == 0) {
      return fields_.reject(kTokens, "it must be an array of strings");
    }
    tokens_ = &tokens->texts;
    const Tensor* embeddings = file_.tensor("token_embd.weight");
    if (embeddings != nullptr && std::cmp_greater(tokens->count, embeddings->shape.front())) {
      return fields_.reject(
          kTokens, fmt::format("but \"token_embd.weight\" has {} rows", embeddings->shape.front()));
    }
    types_.assign(tokens->count, static_cast<std::int64_t>(TokenType::kNormal));
    if (const Array* types = fields_.integers("tokenizer.ggml.token_type"); types != nullptr) {
      if (types->count != tokens->count) {
        return fields_.reject("tokenizer.ggml.token_type",
                              fmt::format("there are {} tokens", tokens->count));
      }
      types_ = types->integers;
    }
    check_tokens();
  }

  /// Each token is UTF-8, so that it is itself in JSON, and no two are the same.
  void check_tokens() {
    std::unordered_map<std::string_view, std::size_t> ids;
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      const std::string& token = (*tokens_)[id];
      JsonWriter json;
      json.string(token);
      if (json.text().find(kReplacement) != std::string::npos &&
          token.find(kReplacement) == std::string::npos) {
        return fields_.reject(kTokens, fmt::format("token {} is not UTF-8", id));
      }
      const auto [other, fresh] = ids.emplace(token, id);
      if (!fresh) {
        return fields_.reject(kTokens,
                              fmt::format("tokens {} and {} are the same", other->second, id));
      }
    }
  }

  void write_added() {
    json_.key("added_tokens").begin_array();
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      const bool special =
          is(types_[id], TokenType::kControl) || is(types_[id], TokenType::kUnknown);
      if (!special && !is(types_[id], TokenType::kUser)) {
        continue;
      }
      json_.begin_object().key("id").integer(id).key("content").string((*tokens_)[id]);
      for (const std::string_view flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
        json_.key(flag).boolean(false);
      }
      json_.key("special").boolean(special).end_object();
    }
    json_.end_array();
  }

  void write_vocabulary() {
    json_.key("vocab").begin_object();
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      json_.key((*tokens_)[id]).integer(id);
    }
    json_.end_object();
  }

  void begin() {
    json_.begin_object().key("version").string("1.0");
    json_.key("truncation").null().key("padding").null();
    const KnownArchitecture* known = find_architecture(file_);
    if (known != nullptr && known->family == spec::Architecture::kBert) {
      write_roberta_template();
    } else {
      json_.key("post_processor").null();
    }
    write_added();
  }

  /// RoBERTa's, and XLM-RoBERTa's: <s> A </s> and <s> A </s> </s> B </s>, of one type.
  void write_roberta_template() {
    const std::int64_t first = id_of({"cls_token_id", "bos_token_id"}, "<s>");
    const std::int64_t last =
        id_of({"seperator_token_id", "separator_token_id", "eos_token_id"}, "</s>");
    if (fields_.ok()) {
      write_template(first, last, {.second = 0, .doubled = true});
    }
  }

  /// A BPE model but for its merges.
  void begin_model(std::optional<std::string> unknown, bool fallback, bool whole_tokens) {
    json_.key("model").begin_object().key("type").string("BPE").key("dropout").null();
    json_.key("unk_token");
    unknown ? json_.string(*unknown) : json_.null();
    json_.key("continuing_subword_prefix").null().key("end_of_word_suffix").null();
    json_.key("fuse_unk").boolean(fallback).key("byte_fallback").boolean(fallback);
    json_.key("ignore_merges").boolean(whole_tokens);
    write_vocabulary();
  }

  /// Null, with an error, where there are none.
  const Array* listed_merges() {
    const Array* merges = fields_.texts("tokenizer.ggml.merges");
    if (merges == nullptr) {
      fields_.reject("tokenizer.ggml.merges", "it must be an array of strings");
    }
    return merges;
  }

  void write_merges(const Array& merges) {
    json_.key("merges").begin_array();
    for (const std::string& merge : merges.texts) {
      const auto space = merge.find(' ', 1);
      if (space == std::string::npos) {
        return fields_.reject("tokenizer.ggml.merges",
                              fmt::format("\"{}\" is no pair of tokens", merge.substr(0, 64)));
      }
      json_.begin_array().string(merge.substr(0, space)).string(merge.substr(space + 1));
      json_.end_array();
    }
    json_.end_array();
  }

  std::string byte_level() {
    constexpr std::string_view kPre = "tokenizer.ggml.pre";
    const std::string named = fields_.text(kPre);
    const PreTokenizer* cuts = find_pre_tokenizer(named.empty() ? "default" : named);
    const Array* merges = listed_merges();
    if (cuts == nullptr) {
      fields_.reject(kPre,
                     fmt::format("known are {}; {}", known_pre_tokenizers(), kElsewhere),
                     Code::kInvalidArgument);
    }
    if (!fields_.ok()) {
      return "";
    }
    begins_ = cuts->begins;
    begin();
    json_.key("normalizer");
    cuts->composes ? json_.json(R"({"type":"NFC"})") : json_.null();
    json_.key("pre_tokenizer").json(pre_tokenizer_json(*cuts));
    json_.key("decoder").json(
        R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})");
    begin_model(std::nullopt, false, cuts->whole_tokens);
    write_merges(*merges);
    json_.end_object().end_object();
    return std::move(json_).take();
  }

  /// Null, with an error, where there is not one for each token.
  const Array* scores_of_tokens() {
    const Array* scores = fields_.numbers("tokenizer.ggml.scores");
    if (scores == nullptr || scores->count != tokens_->size() ||
        !std::ranges::all_of(scores->numbers, [](double score) { return std::isfinite(score); })) {
      fields_.reject("tokenizer.ggml.scores",
                     fmt::format("it must be an array of {} numbers", tokens_->size()));
      return nullptr;
    }
    return scores;
  }

  /// SentencePiece's BPE, whose merges are those of the best scores, or of Gemma 4's listed.
  std::string with_fallback(bool lists) {
    const Array* listed = lists ? listed_merges() : nullptr;
    const Array* scores = lists ? nullptr : scores_of_tokens();
    if (!fields_.ok()) {
      return "";
    }
    begins_ = true;
    const bool prefix = fields_.boolean("tokenizer.ggml.add_space_prefix", !lists);
    const std::string space = fmt::format(R"({{"type":"Prepend","prepend":"{}"}},)", kSpace);
    begin();
    json_.key("normalizer")
        .json(fmt::format(R"({{"type":"Sequence","normalizers":[{}{{"type":"Replace",)"
                          R"("pattern":{{"String":" "}},"content":"{}"}}]}})",
                          prefix ? space : "",
                          kSpace));
    json_.key("pre_tokenizer").null();
    json_.key("decoder").json(fmt::format(
        R"({{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"{}"}},)"
        R"("content":" "}},{{"type":"ByteFallback"}},{{"type":"Fuse"}}{}]}})",
        kSpace,
        prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : ""));
    begin_model(token_of("unknown_token_id"), true, false);
    if (listed != nullptr) {
      write_merges(*listed);
    } else {
      json_.key("merges").begin_array();
      write_score_merges(*tokens_, types_, scores->numbers, json_);
      json_.end_array();
    }
    json_.end_object().end_object();
    return std::move(json_).take();
  }

  /// SentencePiece's Unigram, as XLM-RoBERTa has it.
  std::string unigram() {
    const Array* scores = scores_of_tokens();
    if (scores == nullptr) {
      return "";
    }
    const auto first = std::ranges::find_if(
        types_, [](std::int64_t type) { return is(type, TokenType::kUnknown); });
    const std::int64_t unknown =
        first != types_.end() ? first - types_.begin() : id_of({"unknown_token_id"}, "<unk>");
    begin();
    write_clean_up();
    const std::string_view space =
        fields_.boolean("tokenizer.ggml.add_space_prefix", true) ? R"("always"})" : R"("never"})";
    for (const char* key : {"pre_tokenizer", "decoder"}) {
      json_.key(key).json(
          fmt::format(R"({{"type":"Metaspace","replacement":"{}","split":true,"prepend_scheme":{})",
                      kSpace,
                      space));
    }
    json_.key("model").begin_object().key("type").string("Unigram").key("unk_id").integer(unknown);
    json_.key("byte_fallback").boolean(std::ranges::any_of(types_, [](std::int64_t type) {
      return is(type, TokenType::kByte);
    }));
    json_.key("vocab").begin_array();
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      json_.begin_array().string((*tokens_)[id]).number(scores->numbers[id]).end_array();
    }
    json_.end_array().end_object().end_object();
    return fields_.ok() ? std::move(json_).take() : "";
  }

  /// Characters are exchanged by the table of the file, several spaces become one.
  void write_clean_up() {
    constexpr std::string_view kTable = "tokenizer.ggml.precompiled_charsmap";
    json_.key("normalizer").begin_object().key("type").string("Sequence");
    json_.key("normalizers").begin_array();
    if (const Array* table = fields_.integers(kTable); table != nullptr && table->count > 0) {
      std::string bytes;
      for (const std::int64_t value : table->integers) {
        bytes += static_cast<char>(static_cast<std::uint8_t>(value));
      }
      if (!is_table(bytes)) {
        return fields_.reject(kTable,
                              "that is no table of SentencePiece's, whose trie comes first");
      }
      json_.begin_object().key("type").string("Precompiled");
      json_.key("precompiled_charsmap").string(to_base64(bytes)).end_object();
    }
    if (fields_.boolean("tokenizer.ggml.remove_extra_whitespaces", true)) {
      json_.json(R"({"type":"Strip","strip_left":true,"strip_right":true})");
      json_.json(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})");
    }
    json_.end_array().end_object();
  }

  /// A piece as BERT's own files call it. Conversion marks the pieces that begin a word in place of
  /// those that do not, and leaves "[CLS]" and its like as they are.
  [[nodiscard]] static std::string piece_of(const std::string& token) {
    if (token.size() > kSpace.size() && token.starts_with(kSpace)) {
      return token.substr(kSpace.size());
    }
    return token.starts_with("[") && token.ends_with("]") ? token : "##" + token;
  }

  /// The id of the first key that is there, or else of the token itself.
  std::int64_t id_of(std::initializer_list<std::string_view> keys, std::string_view token) {
    for (const std::string_view name : keys) {
      const std::string key = fmt::format("tokenizer.ggml.{}", name);
      if (fields_.has(key)) {
        return token_of(name) ? fields_.integer(key) : 0;
      }
    }
    const auto found = std::ranges::find(*tokens_, token);
    if (found == tokens_->end()) {
      fields_.reject(kTokens, fmt::format("there is no \"{}\"", token));
      return 0;
    }
    return found - tokens_->begin();
  }

  void write_pieces() {
    std::unordered_map<std::string, std::size_t> ids;
    json_.key("vocab").begin_object();
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      const auto [other, fresh] = ids.emplace(piece_of((*tokens_)[id]), id);
      if (!fresh) {
        fields_.reject(kTokens,
                       fmt::format("tokens {} and {} are the same piece", other->second, id));
        return;
      }
      json_.key(other->first).integer(id);
    }
    json_.end_object();
  }

  /// BERT's, whose texts lose case and accents, as llama.cpp has it for all such files.
  std::string word_pieces() {
    const std::int64_t unknown = id_of({"unknown_token_id"}, "[UNK]");
    const std::int64_t first = id_of({"cls_token_id", "bos_token_id"}, "[CLS]");
    const std::int64_t last =
        id_of({"seperator_token_id", "separator_token_id", "eos_token_id"}, "[SEP]");
    if (!fields_.ok()) {
      return "";
    }
    json_.begin_object().key("version").string("1.0");
    json_.key("truncation").null().key("padding").null();
    write_added();
    json_.key("normalizer")
        .json(R"({"type":"BertNormalizer","clean_text":true,)"
              R"("handle_chinese_chars":true,"strip_accents":true,)"
              R"("lowercase":true})");
    json_.key("pre_tokenizer").json(R"({"type":"BertPreTokenizer"})");
    write_template(first, last, {.second = 1, .doubled = false});
    json_.key("decoder").json(R"({"type":"WordPiece","prefix":"##","cleanup":true})");
    json_.key("model").begin_object().key("type").string("WordPiece");
    json_.key("unk_token").string((*tokens_)[static_cast<std::size_t>(unknown)]);
    json_.key("continuing_subword_prefix")
        .string("##")
        .key("max_input_chars_per_word")
        .integer(100);
    write_pieces();
    if (!fields_.ok()) {
      return "";
    }
    json_.end_object().end_object();
    return std::move(json_).take();
  }

  /// How two texts stand together.
  struct PairStyle {
    int second = 0;        ///< The second text's type.
    bool doubled = false;  ///< The last token of the first text is there twice.
  };

  /// What stands around a text, and around two: [CLS] A [SEP] B [SEP].
  void write_template(std::int64_t first_id, std::int64_t last_id, PairStyle style) {
    const std::string& first = (*tokens_)[static_cast<std::size_t>(first_id)];
    const std::string& last = (*tokens_)[static_cast<std::size_t>(last_id)];
    const auto part = [this](std::string_view kind, const std::string& id, int type) {
      json_.begin_object().key(kind).begin_object().key("id").string(id);
      json_.key("type_id").integer(type).end_object().end_object();
    };
    json_.key("post_processor").begin_object().key("type").string("TemplateProcessing");
    for (const bool pair : {false, true}) {
      json_.key(pair ? "pair" : "single").begin_array();
      part("SpecialToken", first, 0);
      part("Sequence", "A", 0);
      part("SpecialToken", last, 0);
      if (pair && style.doubled) {
        part("SpecialToken", last, 0);
      }
      if (pair) {
        part("Sequence", "B", style.second);
        part("SpecialToken", last, style.second);
      }
      json_.end_array();
    }
    json_.key("special_tokens").begin_object();
    for (const auto& [token, id] : {std::pair(first, first_id), std::pair(last, last_id)}) {
      json_.key(token).begin_object().key("id").string(token).key("ids").begin_array();
      json_.integer(id).end_array().key("tokens").begin_array().string(token).end_array();
      json_.end_object();
    }
    json_.end_object().end_object();
  }

  /// The token that a key names.
  std::optional<std::string> token_of(std::string_view name) {
    const std::string key = fmt::format("tokenizer.ggml.{}", name);
    if (tokens_ == nullptr || !fields_.has(key)) {
      return std::nullopt;
    }
    const std::int64_t id = fields_.integer(key);
    if (id < 0 || std::cmp_greater_equal(id, tokens_->size())) {
      fields_.reject(key, fmt::format("tokens are 0 to {}", tokens_->size() - 1));
      return std::nullopt;
    }
    return (*tokens_)[static_cast<std::size_t>(id)];
  }

  std::string config() {
    JsonWriter json;
    json.begin_object();
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames = {
        std::pair{"bos_token", "bos_token_id"},
        std::pair{"eos_token", "eos_token_id"},
        std::pair{"unk_token", "unknown_token_id"},
        std::pair{"pad_token", "padding_token_id"}};
    for (const auto& [name, key] : kNames) {
      if (const std::optional<std::string> token = token_of(key)) {
        json.key(name).string(*token);
      }
    }
    json.key("add_bos_token").boolean(fields_.boolean("tokenizer.ggml.add_bos_token", begins_));
    json.key("add_eos_token").boolean(fields_.boolean("tokenizer.ggml.add_eos_token", false));
    write_templates(json);
    json.end_object();
    return std::move(json).take();
  }

  void write_templates(JsonWriter& json) {
    constexpr std::string_view kTemplate = "tokenizer.chat_template";
    if (!fields_.has(kTemplate)) {
      return;
    }
    json.key("chat_template").begin_array();
    const auto write = [&](std::string_view name, const std::string& key) {
      json.begin_object().key("name").string(name).key("template").string(fields_.text(key));
      json.end_object();
    };
    write("default", std::string(kTemplate));
    if (const Array* names = fields_.texts("tokenizer.chat_templates"); names != nullptr) {
      for (const std::string& name : names->texts) {
        const std::string key = fmt::format("{}.{}", kTemplate, name);
        if (fields_.has(key)) {
          write(name, key);
        }
      }
    }
    json.end_array();
  }

  const GgufFile& file_;
  MetadataFields fields_;
  JsonWriter json_{};
  const std::vector<std::string>* tokens_ = nullptr;
  std::vector<std::int64_t> types_{};
  bool begins_ = false;  ///< Text begins with bos where the file does not say.
};

}  // namespace

Result<TextFiles> tokenizer_files(const GgufFile& file) {
  return TokenizerWriter(file).write();
}

Result<TextFiles> text_files(const std::filesystem::path& path) {
  const Result<GgufFile> file = GgufFile::open(path, Keep::kAll);
  if (!file) {
    return file.error();
  }
  Result<std::string> config = config_json(*file);
  if (!config) {
    return config.error();
  }
  Result<TextFiles> files = tokenizer_files(*file);
  if (files) {
    (*files)["config.json"] = std::move(*config);
    (*files)["generation_config.json"] = generation_config_json(*file);
    auto sentences = sentence_files(*file);
    if (!sentences) {
      return sentences.error();
    }
    files->merge(*sentences);
  }
  return files;
}

}  // namespace heddle::gguf
