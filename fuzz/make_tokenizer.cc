#include "make_tokenizer.h"

#include <array>
#include <functional>
#include <string_view>

namespace heddle::fuzz {

namespace {

using namespace std::string_view_literals;

std::string quoted(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    json += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return json + "\"";
}

std::string flag(Choices& choices) {
  return choices.chance(2) ? "true" : "false";
}

std::string number(Choices& choices) {
  constexpr std::array kNumbers = {
      "0"sv, "1"sv, "2"sv, "7"sv, "300"sv, "65536"sv, "4294967295"sv, "18446744073709551615"sv};
  return std::string(choices.of(kNumbers));
}

std::string pattern(Choices& choices) {
  constexpr std::array kRegexes = {""sv,
                                   "a*"sv,
                                   "\\s+"sv,
                                   "(a|b)+"sv,
                                   "(?=b)"sv,
                                   "[^ ]{2,3}"sv,
                                   "."sv,
                                   "(?<!x)\\p{L}"sv,
                                   "((((a))))"sv,
                                   "\\G"sv,
                                   "(a*)*b"sv,
                                   "$"sv};
  return choices.chance(2) ? R"({"String":)" + quoted(choices.text()) + "}"
                           : R"({"Regex":)" + quoted(choices.of(kRegexes)) + "}";
}

/// A few parts of one kind, at times many.
std::string list(Choices& choices,
                 int depth,
                 const std::function<std::string(Choices&, int)>& part) {
  std::string json = "[";
  const std::size_t count = choices.count(40);
  for (std::size_t i = 0; i < count; ++i) {
    json += (i > 0 ? "," : "") + part(choices, depth + 1);
  }
  return json + "]";
}

std::string normalizer(Choices& choices, int depth) {
  constexpr std::array kPlain = {"NFD"sv,
                                 "NFC"sv,
                                 "NFKD"sv,
                                 "NFKC"sv,
                                 "StripAccents"sv,
                                 "Lowercase"sv,
                                 "Nmt"sv,
                                 "ByteLevel"sv};
  constexpr std::array kTables = {""sv,
                                  "AAAA"sv,
                                  "BAAAAAEAAABhAGJjZAA="sv,
                                  "AAAAAA=="sv,
                                  "////////"sv,
                                  "BAAAAP////9hAA=="sv,
                                  "CAAAAAABAAAAAQAAYQ=="sv};
  switch (choices.below(depth > 6 ? 6 : 7)) {
    case 0:
      return R"({"type":"Strip","strip_left":)" + flag(choices) + R"(,"strip_right":)" +
             flag(choices) + "}";
    case 1:
      return R"({"type":"Prepend","prepend":)" + quoted(choices.text()) + "}";
    case 2:
      return R"({"type":"Replace","pattern":)" + pattern(choices) + R"(,"content":)" +
             quoted(choices.text() + choices.text()) + "}";
    case 3:
      return R"({"type":"Precompiled","precompiled_charsmap":)" + quoted(choices.of(kTables)) + "}";
    case 4:
      return R"({"type":"BertNormalizer","clean_text":)" + flag(choices) +
             R"(,"handle_chinese_chars":)" + flag(choices) +
             R"(,"strip_accents":null,"lowercase":)" + flag(choices) + "}";
    case 5:
      return R"({"type":)" + quoted(choices.of(kPlain)) + "}";
    default:
      return R"({"type":"Sequence","normalizers":)" + list(choices, depth, normalizer) + "}";
  }
}

std::string splitter(Choices& choices, int depth) {
  constexpr std::array kPlain = {
      "BertPreTokenizer"sv, "Whitespace"sv, "WhitespaceSplit"sv, "UnicodeScripts"sv};
  constexpr std::array kBehaviors = {
      "Removed"sv, "Isolated"sv, "MergedWithPrevious"sv, "MergedWithNext"sv, "Contiguous"sv};
  const std::string behavior = quoted(choices.of(kBehaviors));
  switch (choices.below(depth > 6 ? 8 : 9)) {
    case 0:
      return R"({"type":"ByteLevel","add_prefix_space":)" + flag(choices) +
             R"(,"trim_offsets":true,"use_regex":)" + flag(choices) + "}";
    case 1:
      return R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":)" +
             flag(choices) + "}";
    case 2:
      return R"({"type":"Split","pattern":)" + pattern(choices) + R"(,"behavior":)" + behavior +
             R"(,"invert":)" + flag(choices) + "}";
    case 3:
      return R"({"type":"Punctuation","behavior":)" + behavior + "}";
    case 4:
      return R"({"type":"Digits","individual_digits":)" + flag(choices) + "}";
    case 5:
      return R"({"type":"CharDelimiterSplit","delimiter":"a"})";
    case 6:
      return R"({"type":"FixedLength","length":)" + number(choices) + "}";
    case 7:
      return R"({"type":)" + quoted(choices.of(kPlain)) + "}";
    default:
      return R"({"type":"Sequence","pretokenizers":)" + list(choices, depth, splitter) + "}";
  }
}

std::string processor(Choices& choices, int depth) {
  const auto piece = [](Choices& from, int) -> std::string {
    return from.chance(2) ? R"({"Sequence":{"id":"A","type_id":0}})"
                          : R"({"SpecialToken":{"id":"s","type_id":0}})";
  };
  switch (choices.below(depth > 6 ? 4 : 5)) {
    case 0:
      return R"({"type":"TemplateProcessing","single":)" + list(choices, depth, piece) +
             R"(,"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
             R"("special_tokens":{"s":{"id":"s","ids":[)" +
             number(choices) + R"(],"tokens":["s"]}}})";
    case 1:
      return R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":)" + flag(choices) +
             R"(,"use_regex":true})";
    case 2:
      return R"({"type":"RobertaProcessing","sep":["s",)" + number(choices) +
             R"(],"cls":["c",1],"trim_offsets":)" + flag(choices) + R"(,"add_prefix_space":)" +
             flag(choices) + "}";
    case 3:
      return R"({"type":"BertProcessing","sep":["s",1],"cls":["c",)" + number(choices) + "]}";
    default:
      return R"({"type":"Sequence","processors":)" + list(choices, depth, processor) + "}";
  }
}

std::string decoder(Choices& choices, int depth) {
  switch (choices.below(depth > 6 ? 9 : 10)) {
    case 0:
      return R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
    case 1:
      return R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true})";
    case 2:
      return R"({"type":"Replace","pattern":)" + pattern(choices) + R"(,"content":)" +
             quoted(choices.text()) + "}";
    case 3:
      return R"({"type":"ByteFallback"})";
    case 4:
      return R"({"type":"Fuse"})";
    case 5:
      return R"({"type":"Strip","content":"a","start":)" + number(choices) + R"(,"stop":)" +
             number(choices) + "}";
    case 6:
      return R"({"type":"WordPiece","prefix":"##","cleanup":)" + flag(choices) + "}";
    case 7:
      return R"({"type":"BPEDecoder","suffix":"</w>"})";
    case 8:
      return R"({"type":"CTC","pad_token":"a","word_delimiter_token":"|","cleanup":true})";
    default:
      return R"({"type":"Sequence","decoders":)" + list(choices, depth, decoder) + "}";
  }
}

/// Pieces with ids, "a" and "b" among them.
std::string vocabulary(Choices& choices) {
  std::string json = R"({"a":0,"b":1,"ab":2,"<unk>":)" + number(choices);
  for (std::size_t left = choices.count(60); left > 0; --left) {
    json += "," + quoted(choices.text() + std::to_string(left)) + ":" +
            (choices.chance(4) ? number(choices) : std::to_string(3 + left));
  }
  return json + "}";
}

std::string model(Choices& choices) {
  switch (choices.below(4)) {
    case 0:
      return R"({"type":"WordLevel","unk_token":"<unk>","vocab":)" + vocabulary(choices) + "}";
    case 1:
      return R"({"type":"WordPiece","unk_token":"<unk>","continuing_subword_prefix":)" +
             quoted(choices.text()) + R"(,"max_input_chars_per_word":)" + number(choices) +
             R"(,"vocab":)" + vocabulary(choices) + "}";
    case 2: {
      std::string pieces = R"([["<unk>",0.0],["a",-1.0],["ab",-1e308])";
      for (std::size_t left = choices.count(60); left > 0; --left) {
        pieces +=
            ",[" + quoted(choices.text()) + "," + (choices.chance(5) ? "1e300" : "-2.5") + "]";
      }
      return R"({"type":"Unigram","unk_id":)" + number(choices) + R"(,"byte_fallback":)" +
             flag(choices) + R"(,"vocab":)" + pieces + "]}";
    }
    default:
      return R"({"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":)" +
             (choices.chance(3) ? quoted(choices.text()) : "null") + R"(,"end_of_word_suffix":)" +
             (choices.chance(3) ? quoted(choices.text()) : "null") + R"(,"fuse_unk":)" +
             flag(choices) + R"(,"byte_fallback":)" + flag(choices) + R"(,"ignore_merges":)" +
             flag(choices) + R"(,"vocab":)" + vocabulary(choices) +
             (choices.chance(3) ? R"(,"merges":[]})" : R"(,"merges":["a b"]})");
  }
}

std::string added(Choices& choices, int) {
  return R"({"id":)" + number(choices) + R"(,"content":)" + quoted(choices.text()) +
         R"(,"single_word":)" + flag(choices) + R"(,"lstrip":)" + flag(choices) + R"(,"rstrip":)" +
         flag(choices) + R"(,"normalized":)" + flag(choices) + R"(,"special":)" + flag(choices) +
         "}";
}

}  // namespace

std::string make_tokenizer(Choices& choices) {
  const auto some = [&choices](const std::function<std::string(Choices&, int)>& part) {
    return choices.chance(3) ? std::string("null") : part(choices, 0);
  };
  std::string json = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)";
  json += list(choices, 0, added);
  json += R"(,"normalizer":)" + some(normalizer);
  json += R"(,"pre_tokenizer":)" + some(splitter);
  json += R"(,"post_processor":)" + some(processor);
  json += R"(,"decoder":)" + some(decoder);
  return json + R"(,"model":)" + model(choices) + "}";
}

}  // namespace heddle::fuzz
