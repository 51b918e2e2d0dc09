#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"
#include "gguf/gguf_file.h"

namespace heddle::gguf {

/// Texts by the names that their files have in a model directory.
using TextFiles = std::map<std::string, std::string, std::less<>>;

/// What a file says of tokens and templates, as a model directory would: tokenizer.json, and
/// tokenizer_config.json with the special tokens and the chat template, or templates.
///
/// | `tokenizer.ggml.model` | becomes |
/// | --- | --- |
/// | gpt2 | byte-level BPE of `tokens` and `merges`, split as `tokenizer.ggml.pre` says
/// (pre_tokenizers.h) | | llama | BPE with byte fallback, its merges all pairs of tokens that make
/// a token, best `scores` first, as transformers makes them of SentencePiece | | bert | WordPiece
/// of texts without case and accents, between [CLS] and [SEP] | | t5 | Unigram of SentencePiece,
/// with its table of characters |
///
/// Of an encoder gpt2 and t5 stand between <s> and </s>, as RoBERTa has them.
///
/// Tokens of type control are special, those and user-defined ones are found in text as they are.
/// kCorrupt, naming the key, for what contradicts itself; kInvalidArgument for a tokenizer that is
/// not built in. Requires that the file was opened with Keep::kAll.
[[nodiscard]] Result<TextFiles> tokenizer_files(const GgufFile& file);

/// All text files of the model directory that the file of this name stands for: those, config.json
/// generation_config.json, and those of sentence-transformers (gguf_encoder.h).
[[nodiscard]] Result<TextFiles> text_files(const std::filesystem::path& path);

}  // namespace heddle::gguf
