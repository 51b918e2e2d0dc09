#pragma once

// What tests may ask of the emulated cuBLASLt beside what the library does. Looked up by name, as
// the library's functions are.

extern "C" {

/// How many products it has done.
unsigned long heddle_cublaslt_emulator_products();
/// It advises three ways of each product, which do the same. By events that are timed a way (0, 1,
/// 2) takes so long, without a wait: at first 30, 10 and 20 seconds.
void heddle_cublaslt_emulator_set_time(int way, double seconds);
/// The way of the product that it did last; -1: it has done none.
int heddle_cublaslt_emulator_last_way();
}
