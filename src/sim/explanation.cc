#include "sim/explanation.h"

#include <algorithm>
#include <array>

#include "sim/print.h"

namespace heddle::sim {
namespace {

/// Actions kept from before the request came, since they may be why nothing was free.
constexpr std::size_t kBefore = 64;
/// And from then on; a request that waits for longer is no clearer for more of them.
constexpr std::size_t kActsMost = 4000;
constexpr std::size_t kLinesMost = 40;
constexpr std::size_t kLoadsKept = 512;
constexpr std::size_t kNamesMost = 4;

/// By Reason: the same as its name, for people.
constexpr std::array<std::string_view, 25> kWhy{
    "placed before the first request",
    "an instance of the model serves",
    "its weights are there",
    "its weights are on their way already",
    "nothing of it is there",
    "load calls for another instance",
    "load does not call for this instance",
    "unused for longer than it is kept",
    "another model needs the pages",
    "the forecast says that it will be needed",
    "the forecast's peak says that it will be needed",
    "pages that a draining instance no longer needs",
    "several servers load parts of it at once",
    "a pipeline becomes one worker",
    "its queue's turn on this GPU",
    "KV pressure is least there",
    "KV pressure is evened out",
    "it can meet its deadline",
    "it cannot meet its deadline, others go first",
    "a suspended engine returns",
    "KV of guests goes to a colder GPU",
    "something failed",
    "it would not fit even alone",
    "shares of memory follow use",
    "the cheapest of the plans that meet the objective",
};

double since_start(Instant at) {
  return to_seconds(at.time_since_epoch());
}

std::string name_of(ModelId id, const std::vector<std::string>& models) {
  return id.value() < models.size() ? models[id.value()] : "model " + std::to_string(id.value());
}

std::string gpu_names(const std::vector<GpuId>& gpus) {
  std::string text = gpus.size() > 1 ? "GPUs " : "GPU ";
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == gpus.size() ? " and " : ", ") + std::to_string(gpus[i].value());
  }
  return text;
}

std::string list_of(const std::vector<ModelId>& ids, const std::vector<std::string>& models) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ids.size(), kNamesMost); ++i) {
    text += (i == 0 ? "" : ", ") + name_of(ids[i], models);
  }
  return ids.size() > kNamesMost ? text + " and others" : text;
}

/// Over which link weights of this source come, and how fast it is.
std::pair<std::string, double> link_of(WeightSource source, const HostSpec& host) {
  switch (source) {
    case WeightSource::kRemote:
      return {"from the store over the NIC", host.links.nic};
    case WeightSource::kHost:
      return {"from host memory over PCIe", host.links.pcie};
    case WeightSource::kSpread:
      return {"from host memory through all GPUs", host.links.spread};
    case WeightSource::kDisk:
      return {"from the local disk", host.links.disk};
    case WeightSource::kNothing:
      break;
  }
  return {"", 0};
}

std::string source_words(WeightSource source) {
  return link_of(source, {}).first;
}

}  // namespace

void Explanation::acted(const World& world, const Observer::Act& act) {
  if (row_) {
    return;
  }
  arrived_ = arrived_ || world.counts().arrived > static_cast<std::int64_t>(request_.value());
  if (act.verb == "start") {
    loads_.push_back(act.replica);
    if (loads_.size() > kLoadsKept) {
      loads_.pop_front();
    }
  }
  const bool own = act.request == request_;
  if (own && act.verb == "dispatch") {
    hand(world, act);
  }
  if ((act.request && !own) || (acts_.size() >= kActsMost && !own)) {
    return;
  }
  acts_.push_back(act);
  if (!arrived_ && acts_.size() > kBefore) {
    acts_.pop_front();
  }
}

void Explanation::hand(const World& world, const Observer::Act& act) {
  const Replica& replica = *world.replica(act.replica);
  const ModelSpec& model = world.model(act.model);
  const HostId host = world.gpu(replica.gpus[0]).host;
  const auto [words, rate] = link_of(replica.spec.source, world.host_spec(host));
  double part = 0;
  for (const StageSpec& stage : replica.spec.stages) {
    part = std::max(part, stage.weights);
  }
  const double load = std::max(0.0, replica.spec.start_part - replica.spec.present);
  Handed made{.at = act.at,
              .gpus = replica.gpus,
              .host = world.host_spec(host).name + "-" + std::to_string(host.value()),
              .spec = replica.spec,
              .created = replica.created,
              .begun = replica.begun,
              .filled = replica.filled,
              .serving_since = replica.serving_since,
              .bytes = words.empty() ? 0 : static_cast<double>(model.weight_bytes()) * load * part,
              .link_rate = rate,
              .others = static_cast<double>(replica.load())};
  for (const ReplicaId id : loads_) {
    const Replica* other = world.replica(id);
    if (other == nullptr || other == &replica || !other->begun || !made.begun || !made.filled ||
        other->spec.source != made.spec.source || world.gpu(other->gpus[0]).host != host) {
      continue;
    }
    if (*other->begun < *made.filled && (!other->filled || *other->filled > *made.begun)) {
      made.sharing.push_back(other->model);
    }
  }
  handed_.push_back(std::move(made));
}

void Explanation::ended(const World& world, const RequestRow& row) {
  if (row.number != request_) {
    return;
  }
  row_ = row;
  const ModelSpec& model = world.model(row.model);
  slo_ttft_ = model.slo_ttft;
  for (Handed& handed : handed_) {
    const StepModel& step = world.step_model(row.model, world.gpu(handed.gpus[0]).host);
    std::int64_t work = 0;
    for (std::int64_t done = 0; done < row.input_tokens;) {
      const std::int64_t chunk = std::min(model.max_batch_tokens, row.input_tokens - done);
      work += std::max(step.launch_ps(),
                       step.fixed_ps() + step.base_ps(chunk, 1) +
                           step.chunk_ps({.tokens = chunk, .cached = done}));
      done += chunk;
    }
    handed.prefill = Duration(work / 1000);
  }
}

std::string Explanation::weights_clause(const Handed& handed,
                                        Duration took,
                                        const std::vector<std::string>& models) const {
  std::string text = print("%.2f GB of weights came ", handed.bytes * 1e-9) +
                     source_words(handed.spec.source) + " of " + handed.host;
  if (handed.spec.stages.size() > 1) {
    text += print(" (one of %zu parts, each on a server)", handed.spec.stages.size());
  }
  if (took > Duration{} && handed.link_rate > 0) {
    text += print(
        ", at %.2f of %.2f GB/s", handed.bytes * 1e-9 / to_seconds(took), handed.link_rate * 1e-9);
  }
  if (!handed.sharing.empty()) {
    text += "; the link was shared with " + std::to_string(handed.sharing.size()) +
            (handed.sharing.size() == 1 ? " other load (" : " other loads (") +
            list_of(handed.sharing, models) + ")";
  }
  return text;
}

std::string Explanation::pages_clause(const Handed& handed,
                                      const std::vector<std::string>& models) const {
  std::vector<ModelId> victims;
  for (const Observer::Act& act : acts_) {
    const bool here =
        act.gpu && std::find(handed.gpus.begin(), handed.gpus.end(), *act.gpu) != handed.gpus.end();
    if (act.verb == "evict" && (act.other == row_->model || here) && act.at >= row_->arrival &&
        act.at <= handed.begun.value_or(handed.at)) {
      victims.push_back(act.model);
    }
  }
  const std::string where = "pages of " + gpu_names(handed.gpus) + " were being freed";
  return victims.empty() ? where : where + ": " + list_of(victims, models) + " had to go";
}

std::vector<Explanation::Part> Explanation::parts(const std::vector<std::string>& models) const {
  if (!row_ || !row_->first_token) {
    return {};
  }
  const auto last = std::find_if(handed_.rbegin(), handed_.rend(), [&](const Handed& handed) {
    return handed.at <= *row_->first_token;
  });
  if (last == handed_.rend()) {
    return {};
  }
  const Handed& handed = *last;
  const Instant first = *row_->first_token;
  std::vector<Part> made;
  Instant reached = row_->arrival;
  const auto until = [&](Instant end, const std::string& brief, const auto& clause) {
    end = std::min(end, first);
    if (end > reached) {
      made.push_back({.took = end - reached, .what = clause(end - reached), .brief = brief});
      reached = end;
    }
  };
  const auto plain = [](const std::string& text) { return [text](Duration) { return text; }; };
  until(handed.created,
        "waiting until something was begun for it",
        plain("nothing was begun for it: no GPU had room, or others went first"));
  if (handed.begun && handed.filled) {
    const double whole = handed.spec.start_part > 0 ? handed.bytes / handed.spec.start_part : 0;
    const Duration after = handed.spec.after + from_seconds(handed.spec.per_byte * whole);
    until(
        *handed.begun, "waiting for pages", [&](Duration) { return pages_clause(handed, models); });
    until(*handed.begun + handed.spec.before,
          "making a process ready",
          plain("a process was made ready on " + handed.host));
    until(std::max(*handed.filled - after, *handed.begun + handed.spec.before),
          "the way of its weights",
          [&](Duration took) { return weights_clause(handed, took, models); });
    until(*handed.filled, "the engine's start", plain("the engine started on the weights"));
  }
  until(handed.serving_since,
        "the engine's start",
        plain("an engine took over weights that were resident on " + gpu_names(handed.gpus)));
  until(handed.at,
        "waiting for a place in an instance",
        plain("every instance of its model was full, or others went first"));
  until(first - handed.prefill, "its turn in the engine", [&](Duration) {
    return print("it waited for its turn in the engine, beside %.0f other requests", handed.others);
  });
  until(first,
        "its prompt",
        plain(print("its prompt was computed (alone that takes %.3g s)",
                    to_seconds(handed.prefill))));
  return made;
}

std::string Explanation::tell(const std::vector<std::string>& models) const {
  if (!row_) {
    return "The workload has no request " + std::to_string(request_.value()) + ".\n";
  }
  const RequestRow& row = *row_;
  std::string text = "Request " + std::to_string(row.number.value()) + " of " +
                     name_of(row.model, models) +
                     print(": %lld tokens in, %lld out.\n",
                           static_cast<long long>(row.input_tokens),
                           static_cast<long long>(row.output_tokens));
  text += print("It came at %.3f s", since_start(row.arrival));
  text += row.cold ? ", when no instance of its model served.\n" : ".\n";
  if (row.first_token) {
    const Duration ttft = *row.first_token - row.arrival;
    text += print("Its first token came %.3f s later", to_seconds(ttft));
    if (slo_ttft_ > Duration{}) {
      text += ttft > slo_ttft_ ? print(": %.3f s late, its objective being %.3g s",
                                       to_seconds(ttft - slo_ttft_),
                                       to_seconds(slo_ttft_))
                               : print(", within its objective of %.3g s", to_seconds(slo_ttft_));
    }
    text += row.finished
                ? print("; it was done after %.3f s.\n", to_seconds(*row.finished - row.arrival))
                : "; in the end it was " + std::string(name(row.end)) + ".\n";
  } else {
    text += "It was " + std::string(name(row.end)) + ".\n";
  }
  const std::vector<Part> all = parts(models);
  const auto longest = std::max_element(
      all.begin(), all.end(), [](const Part& a, const Part& b) { return a.took < b.took; });
  if (longest != all.end()) {
    text += "\nWhere the time went, most of it on " + longest->brief + ":\n";
    for (const Part& part : all) {
      text += print("%10.3f s  ", to_seconds(part.took)) + part.what + "\n";
    }
  }
  text += "\nWhat was done meanwhile for its model or in its way:\n";
  const Instant end = row.finished.value_or(Instant::max());
  std::size_t lines = 0;
  for (const Observer::Act& act : acts_) {
    const bool own = act.request == row.number;
    if (act.at < row.arrival || act.at > end ||
        (!own && act.model != row.model && act.other != row.model) ||
        (!own && row.first_token && act.at > *row.first_token)) {
      continue;
    }
    if (++lines > kLinesMost) {
      text += "  and more\n";
      break;
    }
    text += print("%10.3f s  ", to_seconds(act.at - row.arrival)) + std::string(act.verb) + " " +
            name_of(act.model, models);
    text += act.gpu ? " on GPU " + std::to_string(act.gpu->value()) : "";
    text += act.other ? ", for " + name_of(*act.other, models) : "";
    text += " (" + std::string(kWhy.at(static_cast<std::size_t>(act.reason))) + ")\n";
  }
  return lines > 0 ? text : text + "  nothing\n";
}

}  // namespace heddle::sim
