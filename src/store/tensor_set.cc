#include "store/tensor_set.h"

#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "gguf/tensor_names.h"

namespace heddle::store {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

/// What a directory without model.safetensors has instead, as a hint for its owner.
std::string hint(const std::filesystem::path& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".pth") || name.ends_with(".pt")) {
      return fmt::format("; {} must be converted to safetensors first", name);
    }
    if (name.ends_with(".gguf")) {
      return fmt::format("; give the path of {} itself", name);
    }
    if (name.ends_with(".safetensors")) {
      return fmt::format("; {} is neither named {} nor listed in an index", name, kSingle);
    }
  }
  return "";
}

/// The name of a decoder's tensor, as in a model that is nothing else: without the
/// "language_model." that models for text and images put before it.
std::string decoder_name(std::string_view name) {
  constexpr std::string_view kOuter = "language_model.";
  constexpr std::string_view kInner = "model.language_model.";
  if (name.starts_with(kInner)) {
    return "model." + std::string(name.substr(kInner.size()));
  }
  return std::string(name.starts_with(kOuter) ? name.substr(kOuter.size()) : name);
}

}  // namespace

Result<TensorSet> TensorSet::open(const std::filesystem::path& directory) {
  if (is_there(directory / kSingle)) {
    return open_file(directory / kSingle);
  }
  if (is_there(directory / kIndex)) {
    return open_shards(directory / kIndex);
  }
  return Error{
      Code::kNotFound,
      fmt::format(
          "{} has neither {} nor {}{}", directory.string(), kSingle, kIndex, hint(directory))};
}

Result<TensorSet> TensorSet::open_file(const std::filesystem::path& path) {
  Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  if (!opened) {
    return opened.error();
  }
  TensorSet set;
  set.files_.push_back(std::move(opened->file));
  for (StoredTensor& tensor : opened->tensors) {
    std::string name = decoder_name(tensor.name);
    set.entries_.emplace(std::move(name), Entry{.tensor = std::move(tensor), .file = 0});
  }
  return set;
}

Result<TensorSet> TensorSet::open_shards(const std::filesystem::path& index) {
  const Result<std::string> text = read_text(index, kHeaderBytesMax);
  if (!text) {
    return text.error();
  }
  const auto shard_of = parse_safetensors_index(*text, index.string());
  if (!shard_of) {
    return shard_of.error();
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : *shard_of) {
    shards.insert(shard);
  }
  TensorSet set;
  for (const std::string& shard : shards) {
    Result<SafetensorsFile> opened = SafetensorsFile::open(index.parent_path() / shard);
    if (!opened) {
      return Error{opened.error().code,
                   fmt::format("{} names a shard: {}", index.string(), opened.error().message)};
    }
    for (StoredTensor& tensor : opened->tensors) {
      // A tensor that the index gives to another shard, or to none, is not this model's.
      const auto listed = shard_of->find(tensor.name);
      if (listed != shard_of->end() && listed->second == shard) {
        std::string name = decoder_name(tensor.name);
        set.entries_.emplace(std::move(name),
                             Entry{.tensor = std::move(tensor), .file = set.files_.size()});
      }
    }
    set.files_.push_back(std::move(opened->file));
  }
  for (const auto& [name, shard] : *shard_of) {
    if (!set.entries_.contains(decoder_name(name))) {
      return Error{Code::kCorrupt,
                   fmt::format("{}: weight_map says that tensor \"{}\" is in {}, which does not "
                               "have it",
                               index.string(),
                               name,
                               shard)};
    }
  }
  return set;
}

TensorSet TensorSet::of(gguf::GgufFile file) {
  TensorSet set;
  set.described_by_ = "its metadata";
  for (gguf::DirectoryTensor& tensor : gguf::directory_tensors(file)) {
    set.entries_.emplace(std::move(tensor.name),
                         Entry{.tensor = {.name = std::move(tensor.stored.name),
                                          .type = stored_type_of(tensor.stored.type),
                                          .shape = std::move(tensor.stored.shape),
                                          .offset = tensor.stored.offset,
                                          .bytes = tensor.stored.bytes},
                               .file = tensor.stored.file,
                               .interleaved = tensor.interleaved,
                               .whole = true});
  }
  set.files_ = std::move(file.files);
  return set;
}

void TensorSet::exchange(const std::vector<std::string>& names, std::vector<Entry> entries) {
  for (const std::string& name : names) {
    entries_.erase(name);
  }
  for (Entry& entry : entries) {
    std::string name = entry.tensor.name;
    entries_.insert_or_assign(std::move(name), std::move(entry));
  }
}

const TensorSet::Entry* TensorSet::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() ? &found->second : nullptr;
}

const TensorSet::Entry& TensorSet::at(const std::string& name) const {
  const Entry* entry = find(name);
  HEDDLE_CHECK(entry != nullptr);
  return *entry;
}

}  // namespace heddle::store
