#pragma once

#include "gguf/metadata_fields.h"
#include "spec/json_writer.h"

namespace heddle::gguf {

/// Writes the keys bos_token_id and eos_token_id of a config.json: with which token texts begin,
/// null where the file does not say, and with which they end, all of end, turn and message.
void write_token_ids(MetadataFields& fields, spec::JsonWriter& json);

}  // namespace heddle::gguf
