#include "cuda_emulator/fiber.h"

#include <cstdint>

#if !defined(__x86_64__)
#error "the emulator's fibers are written for x86-64"
#endif

// Saves what a callee must keep on the old stack, changes stacks, and takes it from the new one. A
// few nanoseconds, where swapcontext makes two system calls; a block has up to 1024 threads.
asm(R"(
  .text
  .hidden heddle_emulator_switch_stack
  .globl heddle_emulator_switch_stack
  .type heddle_emulator_switch_stack, @function
heddle_emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size heddle_emulator_switch_stack, .-heddle_emulator_switch_stack
)");
extern "C" void heddle_emulator_switch_stack(void** save, void* load);

namespace emulator {

void Fiber::prepare(std::byte* stack_top, Entry entry) {
  constexpr int kSaved = 6;
  // At its first instruction a function finds the stack 8 off a multiple of 16, above it the
  // address to return to: none.
  auto* top = reinterpret_cast<std::uint64_t*>(stack_top) - 1;
  *top = 0;
  *--top = reinterpret_cast<std::uint64_t>(entry);
  for (int i = 0; i < kSaved; ++i) {
    *--top = 0;
  }
  stack_pointer_ = top;
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  heddle_emulator_switch_stack(&from.stack_pointer_, to.stack_pointer_);
}

}  // namespace emulator
