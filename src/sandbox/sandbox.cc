#include "sandbox/sandbox.h"

#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "sandbox/inside.h"

namespace heddle::sandbox {

namespace {

/// What `what` is told to have done that left no answer.
Error explain(const Silence& silence, const std::string& what, const Bounds& bounds) {
  switch (silence.why) {
    case Silence::Why::kDied:
      return {Code::kInvalidArgument,
              what + " ended the process that tried it (" + silence.how +
                  "): it takes too much memory or meets a defect of a library"};
    case Silence::Why::kCpu:
      return {Code::kInvalidArgument,
              what + " takes more than " + format_duration(bounds.cpu) +
                  " of processor time, which is the limit"};
    case Silence::Why::kKilled:
      return {Code::kUnavailable,
              what + " could not be tried: the process was ended twice (" + silence.how +
                  "); try again"};
    case Silence::Why::kImpatient:
      return {Code::kUnavailable,
              what + " could not be tried within " + format_duration(bounds.patience) +
                  ": the machine is too busy; try again"};
    case Silence::Why::kStopped:
      break;
  }
  return {Code::kUnavailable, "the server is shutting down"};
}

}  // namespace

std::variant<Answer, Silence> Sandbox::attempt(std::optional<Process>& process,
                                               const Question& question,
                                               std::string& began) {
  if (!process) {
    Result<Process> started = Process::start(stopping_);
    if (!started) {
      return Answer{.error = started.error()};
    }
    process = std::move(*started);
  }
  (void)process->ask(question, limits_.patience);  // Where it fails, hear() says why.
  while (true) {
    const bool compiling = began == kCompiling;
    std::variant<Answer, Silence> heard = process->hear(
        {.cpu = compiling ? limits_.grammar_cpu : limits_.files_cpu, .patience = limits_.patience});
    if (std::holds_alternative<Silence>(heard)) {
      process.reset();
      return heard;
    }
    Answer& answer = std::get<Answer>(heard);
    if (answer.begins.empty()) {
      return heard;
    }
    began = std::move(answer.begins);
  }
}

Result<void> Sandbox::try_grammar(const GrammarTrial& trial) {
  std::string began;
  std::variant<Answer, Silence> end = attempt(kept_, {.trial = trial}, began);
  const auto* silence = std::get_if<Silence>(&end);
  if (silence != nullptr && silence->why == Silence::Why::kKilled) {
    began.clear();
    end = attempt(kept_, {.trial = trial}, began);
    silence = std::get_if<Silence>(&end);
  }
  if (silence != nullptr) {
    log::warning("the process that tries grammars ended", {{"how", silence->how}, {"at", began}});
    Error error = explain(*silence,
                          began == kCompiling ? "compiling it" : "its vocabulary",
                          {.cpu = limits_.grammar_cpu, .patience = limits_.patience});
    if (began != kCompiling) {
      error.code = Code::kUnavailable;  // No fault of the grammar's.
    }
    return error;
  }
  const std::optional<Error>& error = std::get<Answer>(end).error;
  return error ? Result<void>(*error) : Result<void>();
}

Result<void> Sandbox::try_files(const std::string& directory) {
  std::optional<Process> process;
  std::string began;
  const Question question{.files = true, .trial = {.directory = directory}};
  std::variant<Answer, Silence> end = attempt(process, question, began);
  const auto* silence = std::get_if<Silence>(&end);
  if (silence != nullptr && silence->why == Silence::Why::kKilled) {
    end = attempt(process, question, began);
    silence = std::get_if<Silence>(&end);
  }
  if (silence != nullptr) {
    log::warning("a model's files ended the process that tries them",
                 {{"directory", directory}, {"how", silence->how}, {"at", began}});
    Error error = explain(*silence,
                          began.empty() ? "the model's directory" : "the model's " + began,
                          {.cpu = limits_.files_cpu, .patience = limits_.patience});
    if (error.code == Code::kInvalidArgument) {
      error.code = Code::kCorrupt;
    }
    return error;
  }
  const std::optional<Error>& error = std::get<Answer>(end).error;
  return error ? Result<void>(*error) : Result<void>();
}

}  // namespace heddle::sandbox
