// Compiles a plain loop also for AVX2 and picks at load time. Allowed only where the order of every sum is fixed in the
// source: with contraction off (no fused multiply-add) all versions then give the same bits.
#pragma once

#define STAGECOACH_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define STAGECOACH_CPU_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define STAGECOACH_CPU_CLONES
#endif
