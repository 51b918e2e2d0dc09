#pragma once

#include <cstddef>

namespace emulator {

/// A thread of control with a stack of its own that runs until it hands over: one of the threads of
/// an emulated block. A fiber runs on the OS thread that resumes it. Nothing is unwound when a
/// fiber is abandoned.
class Fiber {
 public:
  using Entry = void (*)();

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Gives the fiber its stack, `bytes` up to `stack_top` (16-aligned), and what it is to run when
  /// it is resumed next. `entry` must not return: it ends by switching away for good.
  void prepare(std::byte* stack_top, Entry entry);

  /// Saves the running context in `from` and goes on where `to` was left.
  static void switch_to(Fiber& from, Fiber& to);

 private:
  void* stack_pointer_ = nullptr;  ///< While it does not run; what it saved is above.
};

}  // namespace emulator
