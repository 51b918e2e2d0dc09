#include "twin/submissions.h"

namespace heddle::twin {

void Submissions::add(Link link, Life place, const core::Submit& submit) {
  Entry& entry = requests_[submit.request] = {.link = link, .place = place};
  for (const core::SubmitChoice& choice : submit.choices) {
    entry.choices[choice.params.choice] = std::ssize(choice.generated);
  }
}

void Submissions::finish(Link link, const core::FinishChoice& finished) {
  const auto found = requests_.find(finished.request);
  if (found != requests_.end() && found->second.link == link) {
    finish(found, finished.choice);
  }
}

void Submissions::finish(Entries::iterator entry, std::uint32_t choice) {
  entry->second.choices.erase(choice);
  if (entry->second.choices.empty()) {
    requests_.erase(entry);
  }
}

std::optional<Life> Submissions::find(Link link, RequestId request) const {
  const auto found = requests_.find(request);
  return found != requests_.end() && found->second.link == link ? std::optional(found->second.place)
                                                                : std::nullopt;
}

void Submissions::remove(Link link, RequestId request) {
  if (find(link, request)) {
    requests_.erase(request);
  }
}

std::map<Submissions::Link, std::vector<core::TokenEvent>> Submissions::share_out(
    Life from, const std::vector<core::TokenEvent>& tokens) {
  std::map<Link, std::vector<core::TokenEvent>> shares;
  for (const core::TokenEvent& token : tokens) {
    const auto found = requests_.find(token.request);
    if (found == requests_.end() || found->second.place != from) {
      continue;
    }
    const auto choice = found->second.choices.find(token.choice);
    if (choice == found->second.choices.end() || choice->second != token.position) {
      continue;
    }
    ++choice->second;
    const Link link = found->second.link;
    if (token.finish != spec::FinishReason::kNone) {
      finish(found, token.choice);
    }
    shares[link].push_back(token);
  }
  return shares;
}

std::optional<Submissions::Link> Submissions::given_up(Life from, RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end() || found->second.place != from) {
    return std::nullopt;
  }
  const Link link = found->second.link;
  requests_.erase(found);
  return link;
}

void Submissions::end(Life life) {
  std::erase_if(requests_, [&](const auto& entry) { return entry.second.place == life; });
}

std::vector<std::pair<RequestId, Life>> Submissions::end(Link link) {
  std::vector<std::pair<RequestId, Life>> ended;
  std::erase_if(requests_, [&](const auto& entry) {
    if (entry.second.link != link) {
      return false;
    }
    ended.emplace_back(entry.first, entry.second.place);
    return true;
  });
  return ended;
}

}  // namespace heddle::twin
