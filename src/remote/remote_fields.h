#pragma once

#include <algorithm>

#include "core/manager_fields.h"
#include "history/load_book.h"
#include "remote/messages.h"
#include "remote/offer_fields.h"
#include "remote/status_fields.h"

/// As core/message_fields.h, for what goes between manager, hosts and gateways.
namespace heddle {

namespace core {

inline void fields(Fields& v, QuotaUse& x) {
  v.type("QuotaUse");
  v(1, "key", x.key);
  v(2, "requests", x.requests, kCount);
  v(3, "tokens", x.tokens, kCount);
  v(4, "requests_per_minute", x.requests_per_minute, kCount);
  v(5, "tokens_per_minute", x.tokens_per_minute, kCount);
  v.require(x, "a key of 1 to 256 bytes, and no more than its bounds", [](const QuotaUse& use) {
    return !use.key.empty() && use.key.size() <= 256 && use.requests <= use.requests_per_minute &&
           use.tokens <= use.tokens_per_minute;
  });
}

inline void fields(Fields& v, Life& x) {
  v.type("Life");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
}

inline void fields(Fields& v, ServedModel& x) {
  v.type("ServedModel");
  v(1, "image_bytes", x.image_bytes);
  v(2, "failure", x.failure);
}

}  // namespace core

namespace remote {

inline void fields(Fields& v, Lead& x) {
  v.message(160, "Lead");
  v(1, "term", x.term);
  v(2, "hears_of_terms", x.hears_of_terms);
}

inline void fields(Fields& v, LaterTerm& x) {
  v.message(197, "LaterTerm");
  v(1, "term", x.term);
}

inline void fields(Fields& v, Configuration& x) {
  v.message(161, "Configuration");
  v(1, "revision", x.revision);
  v(2, "text", x.text);
}

inline void fields(Fields& v, SetModels& x) {
  v.message(162, "SetModels");
  v(1, "models", x.models);
}

inline void fields(Fields& v, Leave& x) {
  v.message(192, "Leave");
  v(1, "leaving", x.leaving);
}

inline void fields(Fields& v, DrainHost& x) {
  v.message(193, "DrainHost");
  v(1, "host", x.host);
  v(2, "leaving", x.leaving);
  v(3, "ticket", x.ticket);
}

inline void fields(Fields& v, Apply& x) {
  v.message(194, "Apply");
  v(1, "ticket", x.ticket);
  v(2, "text", x.text);
  v(3, "dry_run", x.dry_run);
}

inline void fields(Fields& v, PastWindow& x) {
  v.type("PastWindow");
  v(1, "window", x.window, {.least = 0, .most = history::LoadBook::kNumberMost});
  v(2, "mean", x.mean);
  v(3, "peak", x.peak);
  v.require(x, "loads from 0 to 1e9", [](const PastWindow& past) {
    const auto sound = [](float load) {
      return load >= 0 && static_cast<double>(load) <= history::LoadBook::kLoadMost;
    };
    return sound(past.mean) && sound(past.peak);
  });
}

inline void fields(Fields& v, PastLoad& x) {
  v.type("PastLoad");
  v(1, "model", x.model);
  v(2, "windows", x.windows);
  v.require(x,
            "a name of 1 to 1024 bytes and windows that ascend, one or more",
            [](const PastLoad& past) {
              return !past.model.empty() && past.model.size() <= history::LoadBook::kNameMost &&
                     !past.windows.empty() &&
                     std::ranges::adjacent_find(past.windows,
                                                [](const auto& one, const auto& next) {
                                                  return one.window >= next.window;
                                                }) == past.windows.end();
            });
}

inline void fields(Fields& v, Loads& x) {
  v.message(195, "Loads");
  v(1, "length", x.length, kCount);
  v(2, "keep", x.keep, kCount);
  v(3, "models", x.models);
  v(4, "same", x.same);
  v(5, "last", x.last);
  v.require(x,
            "a length of windows, and at most 1024 models, which ascend, of 2048 windows together",
            [](const Loads& loads) {
              std::size_t windows = 0;
              for (const PastLoad& past : loads.models) {
                windows += past.windows.size();
              }
              return loads.length > Duration{} && loads.models.size() <= kLoadsModelsMost &&
                     windows <= kLoadsWindowsMost &&
                     std::ranges::adjacent_find(loads.models,
                                                [](const auto& one, const auto& next) {
                                                  return one.model >= next.model;
                                                }) == loads.models.end();
            });
}

inline void fields(Fields& v, TellLoads& x) {
  v.message(196, "TellLoads");
  v(1, "length", x.length, kCount);
  v(2, "digest", x.digest);
  v(3, "model", x.model);
  v(4, "window", x.window, kCount);
  v.require(x, "a length of windows, and a name of at most 1024 bytes", [](const TellLoads& tell) {
    return tell.length > Duration{} && tell.model.size() <= history::LoadBook::kNameMost;
  });
}

inline void fields(Fields& v, Holders& x) {
  v.message(223, "Holders");
  v(1, "models", x.models);
}

inline void fields(Fields& v, HostHere& x) {
  v.message(163, "HostHere");
  v(1, "host", x.host);
  v(2, "facts", x.facts);
  v(3, "remembers_loads", x.remembers_loads);
  v(4, "shares_cache", x.shares_cache);
}

inline void fields(Fields& v, HostKnown& /*x*/) {
  v.message(164, "HostKnown");
}

inline void fields(Fields& v, Offers& x) {
  v.message(165, "Offers");
  v(1, "revision", x.revision);
  v(2, "offers", x.offers);
}

inline void fields(Fields& v, Told& x) {
  v.message(166, "Told");
  v(1, "device", x.device);
  v(2, "model", x.model);
}

inline void fields(Fields& v, HostStatus& x) {
  v.message(167, "HostStatus");
  v(1, "devices", x.devices);
  v(2, "usage", x.usage);
  v(3, "engines", x.engines);
  v(4, "troubles", x.troubles);
  v(5, "fetches", x.fetches);
}

inline void fields(Fields& v, FetchText& x) {
  v.message(168, "FetchText");
  v(1, "model", x.model);
  v(2, "digest", x.digest);
}

inline void fields(Fields& v, Lives& x) {
  v.message(169, "Lives");
  v(1, "host", x.host);
  v(2, "lives", x.lives);
}

inline void fields(Fields& v, LifeEnded& x) {
  v.message(170, "LifeEnded");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
}

inline void fields(Fields& v, TextFile& x) {
  v.message(171, "TextFile");
  v(1, "model", x.model);
  v(2, "digest", x.digest);
  v(3, "name", x.name);
  v(4, "bytes", x.bytes);
  v(5, "ends", x.ends);
  v(6, "last", x.last);
  v.require(x,
            "at most 1 MiB of a file whose name has no slash and no dot first",
            [](const TextFile& file) {
              return file.bytes.size() <= kTextPieceMost && is_file_name(file.name);
            });
}

inline void fields(Fields& v, TextFailed& x) {
  v.message(172, "TextFailed");
  v(1, "model", x.model);
  v(2, "digest", x.digest);
  v(3, "error", x.error);
}

inline void fields(Fields& v, ServedFacts& x) {
  v.type("ServedFacts");
  v(1, "name", x.name);
  v(2, "digest", x.digest);
  v(3, "served", x.served);
  v(4, "tokens_max", x.tokens_max, kCount);
}

inline void fields(Fields& v, Served& x) {
  v.message(173, "Served");
  v(1, "models", x.models);
  v(2, "shares_quotas", x.shares_quotas);
}

inline void fields(Fields& v, QuotasUsed& x) {
  v.message(245, "QuotasUsed");
  v(1, "uses", x.uses);
  v.require(x, "4096 keys at most", [](const QuotasUsed& used) {
    return used.uses.size() <= core::kQuotaUsesMost;
  });
}

inline void fields(Fields& v, Loading& x) {
  v.message(174, "Loading");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, Status& x) {
  v.message(175, "Status");
  v(1, "models", x.models);
  v(2, "devices", x.devices);
  v(3, "usage", x.usage);
  v(4, "engines", x.engines);
  v(5, "decisions", x.decisions);
  v(6, "troubles", x.troubles);
  v(7, "hosts", x.hosts);
}

}  // namespace remote
}  // namespace heddle
