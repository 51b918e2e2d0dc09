#include "gguf/pre_tokenizers.h"

#include <algorithm>
#include <array>

#include "spec/json_writer.h"

namespace heddle::gguf {
namespace {

constexpr std::array<std::string_view, 1> kLlama3 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<std::string_view, 1> kQwen2 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

/// Marks belong to the letters before them.
constexpr std::array<std::string_view, 1> kQwen35 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<std::string_view, 1> kTekken = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<std::string_view, 1> kGpt4o = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

/// What llama.cpp does where a file does not say how its model cuts text.
constexpr std::array<std::string_view, 4> kDefault = {
    R"([\p{P}\$\+<=>\^~\|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    R"(\p{N}+)",
    R"([0-9][0-9][0-9])"};

/// Letters with a case, punctuation in ASCII and of full width, ideographs and Hangul.
constexpr std::array<std::string_view, 6> kDeepseekLlm = {
    R"([\r\n])",
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F})"
    R"(\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943}]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N}+)"};

constexpr std::array<std::string_view, 5> kDeepseekCoder = {
    R"([\r\n])",
    R"(\s?\p{L}+)",
    R"(\s?\p{P}+)",
    R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N})"};

constexpr PreTokenizer llama3(std::string_view name) {
  return {.name = name, .expressions = kLlama3, .whole_tokens = true, .begins = true};
}
constexpr PreTokenizer qwen2(std::string_view name) {
  return {.name = name, .expressions = kQwen2, .composes = true};
}
constexpr PreTokenizer single_digits(std::string_view name) {
  return {.name = name, .digits = true, .gpt2 = true};
}

constexpr std::array kKnown = {
    PreTokenizer{.name = "default", .expressions = kDefault},
    PreTokenizer{.name = "gpt-2", .gpt2 = true},
    llama3("llama-bpe"),
    llama3("llama-v3"),
    llama3("llama3"),
    PreTokenizer{.name = "smaug-bpe", .expressions = kLlama3},
    qwen2("qwen2"),
    qwen2("deepseek-r1-qwen"),
    PreTokenizer{.name = "qwen35", .expressions = kQwen35, .composes = true},
    single_digits("smollm"),
    single_digits("starcoder"),
    single_digits("refact"),
    PreTokenizer{.name = "tekken", .expressions = kTekken, .whole_tokens = true, .begins = true},
    PreTokenizer{.name = "gpt-4o", .expressions = kGpt4o},
    PreTokenizer{.name = "deepseek-llm", .expressions = kDeepseekLlm},
    PreTokenizer{.name = "deepseek-coder", .expressions = kDeepseekCoder},
    PreTokenizer{.name = "roberta-bpe", .gpt2 = true},
};

void write_byte_level(spec::JsonWriter& json, bool use_regex) {
  json.begin_object().key("type").string("ByteLevel").key("add_prefix_space").boolean(false);
  json.key("trim_offsets").boolean(true).key("use_regex").boolean(use_regex).end_object();
}

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  const auto* found = std::ranges::find(kKnown, name, &PreTokenizer::name);
  return found == kKnown.end() ? nullptr : found;
}

std::string known_pre_tokenizers() {
  std::string names;
  for (const PreTokenizer& known : kKnown) {
    names += names.empty() ? "" : ", ";
    names += known.name;
  }
  return names;
}

std::string pre_tokenizer_json(const PreTokenizer& cuts) {
  spec::JsonWriter json;
  json.begin_object().key("type").string("Sequence").key("pretokenizers").begin_array();
  if (cuts.digits) {
    json.begin_object().key("type").string("Digits").key("individual_digits").boolean(true);
    json.end_object();
  }
  for (const std::string_view expression : cuts.expressions) {
    json.begin_object().key("type").string("Split").key("pattern").begin_object();
    json.key("Regex").string(expression).end_object();
    json.key("behavior").string("Isolated").key("invert").boolean(false).end_object();
  }
  write_byte_level(json, cuts.gpt2);
  json.end_array().end_object();
  return std::move(json).take();
}

}  // namespace heddle::gguf
