#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "gguf/gguf_file.h"

/// Encoders in GGUF files, whose `general.architecture` is "bert".
namespace heddle::gguf {

/// config_json() of an encoder: a BertModel, or with a tensor "cls.output.weight" a
/// BertForSequenceClassification of one label, whose tables have as many rows as the file's. So
/// RoBERTa's and XLM-RoBERTa's files are ones too: conversion drops the positions that these skip.
/// kInvalidArgument for a model that looks back alone, for several labels, and for a head that ends
/// with "cls.weight"; kCorrupt where `pooling_type` is 4 (rank) and nothing scores.
[[nodiscard]] Result<std::string> encoder_config_json(const GgufFile& file);

/// Whether the head of a model that scores has its last product alone (spec::Encoder::bare):
/// conversion leaves BERT's pooler out.
[[nodiscard]] bool scores_barely(const GgufFile& file);

/// What a directory of sentence-transformers would say of vectors, by the names of its files:
/// 1_Pooling/config.json by the key `pooling_type`, and of an encoder modules.json, by which
/// vectors have length 1, as llama.cpp's server has them. How a model that scores pools is not
/// read. kInvalidArgument for a way of pooling that is not built in.
[[nodiscard]] Result<std::map<std::string, std::string, std::less<>>> sentence_files(
    const GgufFile& file);

}  // namespace heddle::gguf
