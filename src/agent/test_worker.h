#pragma once

/// What the program of this folder's tests does when it is started as a worker.
namespace heddle::agent {

// A single byte instead of a hello, which never begins with one: no hello is 254 bytes long.
inline constexpr char kDescribeYourself = '\xfe';
inline constexpr char kExitWithSeven = '\xff';

// How it behaves, said in the hello as its name.
inline constexpr const char* kSaysAllThenEnds = "says all, then ends";
inline constexpr const char* kSpeaksForAnotherLife = "speaks for another life";
inline constexpr const char* kTalksNonsense = "talks nonsense";
inline constexpr const char* kHangsUp = "hangs up";
inline constexpr const char* kWantsTheArena = "wants the arena";

}  // namespace heddle::agent
