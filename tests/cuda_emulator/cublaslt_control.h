#pragma once

// What tests may ask of the emulated cuBLASLt beside what the library does. Looked up by name, as
// the library's functions are.

extern "C" {

/// How many products it has done.
unsigned long heddle_cublaslt_emulator_products();
}
