#include "twin/wire.h"

#include <algorithm>
#include <utility>

namespace heddle::twin {

void Wire::send(Side from, Message message) {
  if (open(from)) {
    put(from, std::move(message));
  }
}

void Wire::close(Side end, bool tells) {
  if (std::exchange(end_of(end).open, false) && tells) {
    put(end, std::nullopt);
  }
}

void Wire::put(Side from, std::optional<Message> message) {
  end_of(from).under_way.push_back(std::move(message));
  arrive_later(from);
}

void Wire::arrive_later(Side from) {
  Instant& last = end_of(from).last;
  last = std::max(
      last, path_.agenda_.now() + path_.times_.hop + path_.faults_.some(path_.faults_.late().hop));
  path_.agenda_.at(last, [self = shared_from_this(), from] { self->arrive(from); });
}

/// The first of what is under way.
void Wire::arrive(Side from) {
  End& sender = end_of(from);
  End& reader = end_of(other(from));
  if (path_.is_cut(from)) {
    ++sender.due;
    return;
  }
  const std::optional<Message> message = std::move(sender.under_way.front());
  sender.under_way.pop_front();
  if (!reader.open || (message && sender.forgets)) {
    return;
  }
  if (message) {
    const auto tell = reader.handlers.on_message;  // Who hears it may put another in its place.
    tell(*message);
  } else {
    notice(other(from), false);
  }
}

void Wire::release(Side from) {
  for (std::size_t due = std::exchange(end_of(from).due, 0); due > 0; --due) {
    arrive_later(from);
  }
}

void Wire::notice(Side end, bool tells) {
  if (open(end)) {
    close(end, tells);
    const auto tell = end_of(end).handlers.on_closed;
    if (tell) {
      tell();
    }
  }
}

std::vector<std::shared_ptr<Wire>> Path::wires() {
  std::vector<std::shared_ptr<Wire>> all;
  std::erase_if(wires_, [&](const std::weak_ptr<Wire>& weak) {
    const std::shared_ptr<Wire> wire = weak.lock();
    const bool any = wire && (wire->open(Side::kCaller) || wire->open(Side::kCallee));
    if (any) {
      all.push_back(wire);
    }
    return !any;
  });
  return all;
}

bool Path::clear() const {
  return !is_cut(Side::kCaller) && !is_cut(Side::kCallee);
}

std::shared_ptr<Wire> Path::connect() {
  const auto wire = std::make_shared<Wire>(*this);
  wires_.push_back(wire);
  return wire;
}

void Path::notice_later(const std::shared_ptr<Wire>& wire, Side end) {
  agenda_.after(faults_.some(times_.silence), [this, wire, end] {
    if (!wire->open(other(end)) || is_cut(other(end))) {
      wire->notice(end, true);
    }
  });
}

void Path::cut(Side from, Duration length) {
  const std::size_t way = Wire::index(from);
  if (cuts_.at(way)++ == 0) {
    ++cut_no_.at(way);
    for (const std::shared_ptr<Wire>& wire : wires()) {
      agenda_.after(faults_.some(times_.silence), [this, wire, from, way, no = cut_no_.at(way)] {
        if (is_cut(from) && cut_no_.at(way) == no) {
          wire->notice(other(from), true);
        }
      });
    }
  }
  agenda_.after(length, [this, from, way] {
    if (--cuts_.at(way) == 0) {
      for (const std::shared_ptr<Wire>& wire : wires()) {
        wire->release(from);
      }
    }
  });
}

void Path::reset(Side end) {
  for (const std::shared_ptr<Wire>& wire : wires()) {
    wire->notice(end, false);
    notice_later(wire, other(end));
  }
}

void Path::fall(Side end, bool silent) {
  for (const std::shared_ptr<Wire>& wire : wires()) {
    wire->end_of(end).forgets = faults_.below(2) == 0;
    wire->close(end, !silent);
    notice_later(wire, other(end));
  }
}

}  // namespace heddle::twin
