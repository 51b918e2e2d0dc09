#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "gguf/gguf_file.h"

/// Encoders in GGUF files, whose `general.architecture` is "bert".
namespace heddle::gguf {

/// config_json() of an encoder: a BertModel whose tables have as many rows as the file's. So
/// RoBERTa's and XLM-RoBERTa's files are ones too: conversion drops the positions that these skip.
/// kInvalidArgument for a model that looks back alone, and for one that scores (`cls` tensors).
[[nodiscard]] Result<std::string> encoder_config_json(const GgufFile& file);

/// What a directory of sentence-transformers would say of vectors, by the names of its files:
/// 1_Pooling/config.json by the key `pooling_type`, and of an encoder modules.json, by which
/// vectors have length 1, as llama.cpp's server has them. kInvalidArgument for a way of pooling
/// that is not built in.
[[nodiscard]] Result<std::map<std::string, std::string, std::less<>>> sentence_files(
    const GgufFile& file);

}  // namespace heddle::gguf
