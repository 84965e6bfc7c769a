// Loops compiled for several widths of vectors, the widest that the machine has being chosen when the program is
// loaded.
//
// The builds are portable (no -march): a loop marked FLASHPROOF_WIDE_VECTORS exists for x86-64-v4 (AVX-512), v3 (AVX2)
// and the baseline. Without contraction to fma and without reassociation, which no file of the project is compiled
// with, every version gives the same bits. AddressSanitizer cannot run the choice, which comes before its own start.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define FLASHPROOF_WIDE_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLASHPROOF_WIDE_VECTORS
#endif
