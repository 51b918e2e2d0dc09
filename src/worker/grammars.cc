#include "worker/grammars.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/text_model.h"

namespace heddle::worker {

namespace {

/// Compilers recurse: as deep as a grammar is, within what they allow.
constexpr std::size_t kStackBytes = std::size_t{64} << 20U;
/// Of a core that steps want too, the thread has a quarter.
constexpr int kNice = 5;

}  // namespace

Grammars::Grammars(std::function<void(SequenceId)> on_compiled)
    : on_compiled_(std::move(on_compiled)) {}

Grammars::~Grammars() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

Result<void> Grammars::start() {
  auto thread = Thread::start({.name = "grammars", .stack_bytes = kStackBytes, .nice = kNice},
                              [this] { run(); });
  if (!thread) {
    return thread.error();
  }
  thread_ = std::move(*thread);
  return {};
}

void Grammars::describe(ModelId model, const std::string& directory, std::int64_t vocabulary) {
  const std::lock_guard lock(mutex_);
  models_[model].directory = directory;
  models_[model].size = vocabulary;
}

Grammars::Matcher Grammars::ask(SequenceId sequence, ModelId model, const spec::Grammar& grammar) {
  const std::lock_guard lock(mutex_);
  HEDDLE_CHECK(models_.contains(model));
  if (grammar.text.size() <= kSmallBytes) {
    if (const auto kept = find_kept(model, grammar); kept != kept_.end()) {
      if (Result<Matcher> copy = kept->start->clone()) {
        return std::move(*copy);
      }
    }
  }
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& other) {
    return other.model == model && other.grammar == grammar;
  });
  if (job != jobs_.end()) {
    job->sequences.push_back(sequence);
  } else {
    jobs_.push_back({.model = model, .grammar = grammar, .sequences = {sequence}});
    changed_.notify_all();
  }
  return nullptr;
}

Result<Grammars::Matcher> Grammars::take(SequenceId sequence) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return made_.contains(sequence); });
  return std::move(made_.extract(sequence).mapped());
}

void Grammars::forget(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  made_.erase(sequence);
  if (copying_ == sequence) {
    copying_.reset();
  }
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (std::erase(job->sequences, sequence) > 0) {
      const bool begun = busy_ && job == jobs_.begin();
      if (job->sequences.empty() && !begun) {
        jobs_.erase(job);
      }
      return;
    }
  }
}

void Grammars::forget(ModelId model) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [model](const Kept& kept) { return kept.model == model; });
  if (const auto found = models_.find(model); found != models_.end()) {
    found->second.vocabulary.reset();
    ++found->second.forgotten;
  }
}

std::uint64_t Grammars::compiled() const {
  const std::lock_guard lock(mutex_);
  return compiled_;
}

void Grammars::run() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) {
      return;
    }
    // What has only to be copied does not wait for what has to be compiled.
    const auto kept = std::find_if(jobs_.begin(), jobs_.end(), [this](const Job& job) {
      return find_kept(job.model, job.grammar) != kept_.end();
    });
    if (kept != jobs_.end()) {
      jobs_.splice(jobs_.begin(), jobs_, kept);
    }
    busy_ = true;
    const Job job = jobs_.front();
    hand_out(lock, start_of(lock, job.model, job.grammar));
    busy_ = false;
    jobs_.pop_front();
  }
}

/// A grammar at its start, kept or compiled.
Result<Grammars::Matcher> Grammars::start_of(Lock& lock,
                                             ModelId model,
                                             const spec::Grammar& grammar) {
  if (const auto kept = find_kept(model, grammar); kept != kept_.end()) {
    return kept->start;
  }
  const std::uint64_t forgotten = models_.at(model).forgotten;
  Result<Vocabulary> tokens = vocabulary(lock, model);
  if (!tokens) {
    return tokens.error();
  }
  lock.unlock();
  Result<Matcher> made = text::GrammarMatcher::open(std::move(*tokens), grammar);
  lock.lock();
  ++compiled_;
  if (made && forgotten == models_.at(model).forgotten) {
    keep(model, grammar, *made);
  }
  return made;
}

Result<Grammars::Vocabulary> Grammars::vocabulary(Lock& lock, ModelId id) {
  const Model model = models_.at(id);
  if (model.vocabulary != nullptr) {
    return model.vocabulary;
  }
  lock.unlock();
  const auto text = text::TextModel::open(model.directory);
  Result<Vocabulary> made =
      text ? text::GrammarVocabulary::make(**text, model.size) : Result<Vocabulary>(text.error());
  lock.lock();
  Model& now = models_.at(id);
  if (made && now.forgotten == model.forgotten) {
    now.vocabulary = *made;
  }
  return made;
}

/// Each sequence of the first job gets a copy of its own, those that join it meanwhile too.
void Grammars::hand_out(Lock& lock, const Result<Matcher>& start) {
  std::vector<SequenceId>& sequences = jobs_.front().sequences;
  while (!sequences.empty()) {
    const SequenceId sequence = sequences.front();
    sequences.erase(sequences.begin());
    copying_ = sequence;
    lock.unlock();
    Result<Matcher> copy = start ? (*start)->clone() : start;
    lock.lock();
    if (!copying_) {
      continue;  // It was forgotten.
    }
    copying_.reset();
    made_.insert_or_assign(sequence, std::move(copy));
    lock.unlock();
    changed_.notify_all();
    on_compiled_(sequence);
    lock.lock();
  }
}

std::list<Grammars::Kept>::iterator Grammars::find_kept(ModelId model,
                                                        const spec::Grammar& grammar) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.model == model && kept.grammar == grammar;
  });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
  }
  return found;
}

void Grammars::keep(ModelId model, const spec::Grammar& grammar, const Matcher& start) {
  kept_.push_front({.model = model, .grammar = grammar, .start = start});
  std::size_t bytes = 0;
  std::size_t count = 0;
  const auto too_much = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    bytes += kept.grammar.text.size();
    return ++count > kKeptMax || bytes > kKeptBytesMax;
  });
  kept_.erase(too_much, kept_.end());
}

}  // namespace heddle::worker
