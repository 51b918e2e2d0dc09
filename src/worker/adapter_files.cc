#include "worker/adapter_files.h"

#include <algorithm>

namespace heddle::worker {

namespace {

/// The client who named it has made no mistake.
Error unusable(const std::string& name, const Error& why) {
  return {Code::kCorrupt, "the adapter \"" + name + "\" cannot be used: " + why.message};
}

Result<AdapterFiles::Handle> open_adapter(const std::string& directory,
                                          const spec::ModelSpec& base,
                                          spec::DType weights) {
  auto made = store::Adapter::open(directory, base, weights);
  if (!made) {
    return made.error();
  }
  if (const Result<void> read = made->read_through(); !read) {
    return read.error();
  }
  return AdapterFiles::Handle(std::make_shared<const store::Adapter>(std::move(*made)));
}

}  // namespace

AdapterFiles::AdapterFiles(std::function<void(SequenceId)> on_opened)
    : on_opened_(std::move(on_opened)) {}

AdapterFiles::~AdapterFiles() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.reset();  // Joins it.
}

void AdapterFiles::describe(ModelId model,
                            const spec::ModelSpec& spec,
                            spec::DType weights,
                            const std::vector<spec::AdapterSource>& sources) {
  const std::lock_guard lock(mutex_);
  Model& known = models_[model];
  known.spec = spec;
  known.weights = weights;
  known.directories.clear();
  for (const spec::AdapterSource& source : sources) {
    known.directories[source.name] = source.directory;
  }
  std::erase_if(open_, [&](const Open& open) {
    return open.name.first == model && !known.directories.contains(open.name.second);
  });
}

Result<AdapterFiles::Handle> AdapterFiles::ask(SequenceId sequence,
                                               ModelId model,
                                               const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = models_.find(model);
  const auto* directories = known == models_.end() ? nullptr : &known->second.directories;
  const auto source = directories == nullptr ? std::map<std::string, std::string>::const_iterator{}
                                             : directories->find(name);
  if (directories == nullptr || source == directories->end()) {
    return Error{Code::kNotFound, "the model has no adapter \"" + name + "\" here"};
  }
  if (Handle open = find_open({model, name}, source->second)) {
    return open;
  }
  if (!thread_) {
    auto thread = Thread::start({.name = "adapters"}, [this] { run(); });
    if (!thread) {
      return thread.error();
    }
    thread_.emplace(std::move(*thread));
  }
  jobs_.push_back({.sequence = sequence,
                   .directory = source->second,
                   .spec = known->second.spec,
                   .weights = known->second.weights,
                   .name = {model, name}});
  changed_.notify_all();
  return Handle();
}

std::optional<Result<AdapterFiles::Handle>> AdapterFiles::take(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(sequence);
  if (found == opened_.end()) {
    return std::nullopt;
  }
  return std::move(opened_.extract(found).mapped());
}

void AdapterFiles::forget(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  opened_.erase(sequence);
  std::erase_if(jobs_, [&](const Job& job) { return job.sequence == sequence; });
  if (opening_ == sequence) {
    opening_.reset();
  }
}

std::string AdapterFiles::name_of(ModelId model, const std::string& identity) const {
  const std::lock_guard lock(mutex_);
  const auto known = models_.find(model);
  if (known == models_.end()) {
    return {};
  }
  const auto name = known->second.names.find(identity);
  return name == known->second.names.end() ? std::string() : name->second;
}

/// The adapter, if it is open and nobody has changed its files.
AdapterFiles::Handle AdapterFiles::find_open(const std::pair<ModelId, std::string>& name,
                                             const std::string& directory) {
  const auto found = std::ranges::find(open_, name, &Open::name);
  if (found == open_.end()) {
    return nullptr;
  }
  const Result<std::string> now = store::adapter_identity(directory);
  if (!now || *now != found->adapter->identity()) {
    open_.erase(found);
    return nullptr;
  }
  open_.splice(open_.begin(), open_, found);
  return found->adapter;
}

void AdapterFiles::keep(const std::pair<ModelId, std::string>& name, const Handle& adapter) {
  models_[name.first].names[adapter->identity()] = name.second;
  std::erase_if(open_, [&](const Open& open) { return open.name == name; });
  open_.push_front({.name = name, .adapter = adapter});
  if (open_.size() > kOpenMax) {
    open_.pop_back();
  }
}

void AdapterFiles::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) {
      return;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    opening_ = job.sequence;
    Handle open = find_open(job.name, job.directory);  // For another sequence, meanwhile.
    Result<Handle> answer = open;
    if (open == nullptr) {
      lock.unlock();
      answer = open_adapter(job.directory, job.spec, job.weights);
      lock.lock();
    }
    if (answer) {
      keep(job.name, *answer);
    } else {
      answer = unusable(job.name.second, answer.error());
    }
    if (!opening_) {
      continue;  // It was forgotten.
    }
    opening_.reset();
    opened_.insert_or_assign(job.sequence, std::move(answer));
    lock.unlock();
    on_opened_(job.sequence);
    lock.lock();
  }
}

}  // namespace heddle::worker
