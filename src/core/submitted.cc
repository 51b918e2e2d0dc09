#include "core/submitted.h"

namespace heddle::core {

void Submitted::add(LinkId link, const Life& place, const Submit& submit) {
  Entry& entry = requests_[submit.request] = {.link = link, .place = place};
  for (const SubmitChoice& choice : submit.choices) {
    entry.choices[choice.params.choice] = std::ssize(choice.generated);
  }
}

void Submitted::finish(LinkId link, const FinishChoice& finished) {
  const auto found = requests_.find(finished.request);
  if (found != requests_.end() && found->second.link == link) {
    finish(found, finished.choice);
  }
}

void Submitted::finish(Entries::iterator entry, std::uint32_t choice) {
  entry->second.choices.erase(choice);
  if (entry->second.choices.empty()) {
    requests_.erase(entry);
  }
}

std::optional<Life> Submitted::find(LinkId link, RequestId request) const {
  const auto found = requests_.find(request);
  return found != requests_.end() && found->second.link == link ? std::optional(found->second.place)
                                                                : std::nullopt;
}

void Submitted::remove(LinkId link, RequestId request) {
  if (find(link, request)) {
    requests_.erase(request);
  }
}

std::map<LinkId, std::vector<TokenEvent>> Submitted::share_out(const Life& from,
                                                               std::vector<TokenEvent> tokens) {
  std::map<LinkId, std::vector<TokenEvent>> shares;
  for (TokenEvent& token : tokens) {
    const auto found = requests_.find(token.request);
    if (found == requests_.end() || found->second.place != from) {
      continue;
    }
    const auto choice = found->second.choices.find(token.choice);
    if (choice == found->second.choices.end() || choice->second != token.position) {
      continue;
    }
    ++choice->second;
    const LinkId link = found->second.link;
    if (token.finish != spec::FinishReason::kNone) {
      finish(found, token.choice);
    }
    shares[link].push_back(std::move(token));
  }
  return shares;
}

std::optional<LinkId> Submitted::given_up(const Life& from, RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end() || found->second.place != from) {
    return std::nullopt;
  }
  const LinkId link = found->second.link;
  requests_.erase(found);
  return link;
}

void Submitted::end(const Life& life) {
  std::erase_if(requests_, [&](const auto& entry) { return entry.second.place == life; });
}

std::vector<std::pair<RequestId, Life>> Submitted::end(LinkId link) {
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

}  // namespace heddle::core
