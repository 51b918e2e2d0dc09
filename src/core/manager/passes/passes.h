#pragma once

#include "core/manager/parts.h"

/// What the manager does again after every event, one pass after the other. A pass reads the state,
/// has the parts of the core do what it decides, and calls no other pass; manager_core.cc has their
/// order.
namespace heddle::core::manager {

// ---- Each in a file of its name in this folder ----

/// Fails requests whose deadline has passed; all of them once the server's own has.
void expire(const Parts& core);

/// Unloads what an operator wants gone, and what the configuration does not have any more.
void unload(const Parts& core);
/// An external engine that is at two places, as after its host was cut off, goes from all but one.
void unload_doubles(const Parts& core);
/// A model that serves where a request of its own does not fit takes no more and goes when it is
/// idle, to be placed where it fits. If no request waits for that any more, it stays.
void unload_cramped(const Parts& core);

/// Empties hosts that are to go: what is in use there is loaded elsewhere first, as far as it can
/// be. Its requests there end, and then it goes.
void leave(const Parts& core);

/// Keeps groups whole: without a shard the others go, and a group that is complete is formed.
void tend_groups(const Parts& core);

/// Has groups that have been idle for a while give up what they do not need of their shares of KV.
void fit_shares(const Parts& core);

/// Where a model runs in stages, brings it to one device (HydraServe's consolidation): once the
/// whole of it serves, its stages get no more requests, and go when theirs have ended.
void consolidate(const Parts& core);

/// Where an instance is to go and its model serves elsewhere, its requests go on there, one after
/// the other, with their KV.
void follow(const Parts& core);

/// A device that was kept free for one request is free for all again when that cannot run there.
void release(const Parts& core);
/// Sends requests that wait to devices that serve their model.
void dispatch(const Parts& core);

/// Finds places for the models that requests or operators wait for, the longest wait first.
void place(const Parts& core);

/// Says when requests have their first tokens that wait for weights on their way, which nobody
/// began for them.
void attach(const Parts& core);
/// Loads models elsewhere whose requests wait for weights on their way, and would be answered so
/// much sooner that this is worth the load.
void overtake(const Parts& core);

/// Has devices lend memory to KV of models elsewhere that lack it, and recalls what a device wants
/// itself (WEAVER; docs/contracts/guests.md).
void weave(const Parts& core);

/// Divides what a device has left among the KV of its elastic engines (policy/kv_shares.h), and
/// counts those as short of memory that want more.
void share_kv(const Parts& core);

/// Recalls requests that wait for memory where another device of their model has some.
void recall(const Parts& core);
/// Has idle models give their pages to requests that have waited for as much as those are worth,
/// and gives models that lack memory another device (Prism; policy/lending.h).
void lend(const Parts& core);

/// Has requests that wait at an instance go to others of their model where nobody waits. Gives a
/// model with more requests than its instances bear one more once these have waited for as much as
/// it costs.
void spread(const Parts& core);

/// Gives models with more load than their instances should bear one more instance; spares one of
/// those that have less, so that it is idle when another model wants its pages.
void scale(const Parts& core);

/// Moves the model whose move relieves KV pressure most (Prism).
void balance(const Parts& core);
/// Where a model that moves serves elsewhere by now, the instance that it leaves is sent nothing
/// more and goes when it is idle. If it did not get there, it stays.
void finish_moves(const Parts& core);

/// Loads what the forecast expects, where it costs no other model more than it is worth; on each
/// device one at a time, and not while a load that requests wait for is under way (WarmServe).
void prewarm(const Parts& core);

}  // namespace heddle::core::manager
