// Sixteen-lane float vectors on top of whatever the target offers.
//
// A `vf` is always 16 floats (one AVX-512, two AVX2 or four 128-bit registers),
// so that the packed layouts and the accumulation order are the same in every
// build.  The file is compiled with -ffp-contract=off: only `fma` fuses.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef uint32_t u32;
typedef uint16_t u16;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define DP_AVX512 1
#define DP_VBYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
#define DP_AVX2 1
#define DP_VBYTES 32
#else
#define DP_VBYTES 16
#endif
#if defined(DP_AVX512) && defined(__AVX512BF16__)
#define DP_BF16DOT 1
#endif

#define DP_INLINE static inline __attribute__((always_inline))

constexpr int LANES = 16;
constexpr int NP = 64 / DP_VBYTES;
constexpr int PL = LANES / NP;  // lanes of one physical register
typedef float V __attribute__((vector_size(DP_VBYTES)));
typedef u32 VI __attribute__((vector_size(DP_VBYTES)));
typedef int32_t VS __attribute__((vector_size(DP_VBYTES)));
typedef u16 VH __attribute__((vector_size(DP_VBYTES / 2)));

struct vf { V a[NP]; };
struct vu { VI a[NP]; };

DP_INLINE V p_set1(float s) {
#if defined(DP_AVX512)
  return (V)_mm512_set1_ps(s);
#elif defined(DP_AVX2)
  return (V)_mm256_set1_ps(s);
#else
  return (V){s, s, s, s};
#endif
}
DP_INLINE VI p_set1u(u32 s) {
#if defined(DP_AVX512)
  return (VI)_mm512_set1_epi32((int)s);
#elif defined(DP_AVX2)
  return (VI)_mm256_set1_epi32((int)s);
#else
  return (VI){s, s, s, s};
#endif
}
DP_INLINE V p_fma(V x, V y, V z) {
#if defined(DP_AVX512)
  return (V)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(DP_AVX2)
  return (V)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined(__aarch64__)
  return (V)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#else
  return x * y + z;
#endif
}
DP_INLINE V p_max(V x, V y) {
#if defined(DP_AVX512)
  return (V)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined(DP_AVX2)
  return (V)_mm256_max_ps((__m256)x, (__m256)y);
#else
  return x > y ? x : y;
#endif
}
DP_INLINE V p_min(V x, V y) {
#if defined(DP_AVX512)
  return (V)_mm512_min_ps((__m512)x, (__m512)y);
#elif defined(DP_AVX2)
  return (V)_mm256_min_ps((__m256)x, (__m256)y);
#else
  return x < y ? x : y;
#endif
}
template <class T> DP_INLINE T p_load(const void* p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}

#define DP_EACH for (int i = 0; i < NP; i++)
DP_INLINE vf set1(float s) { vf r; DP_EACH r.a[i] = p_set1(s); return r; }
DP_INLINE vf zero() { return set1(0.f); }
DP_INLINE vu set1u(u32 s) { vu r; DP_EACH r.a[i] = p_set1u(s); return r; }
DP_INLINE vf ld(const float* p) { vf r; DP_EACH r.a[i] = p_load<V>(p + i * PL); return r; }
DP_INLINE vu ldu(const u32* p) { vu r; DP_EACH r.a[i] = p_load<VI>(p + i * PL); return r; }
DP_INLINE void st(float* p, vf x) { memcpy(p, &x, 64); }
DP_INLINE vf operator+(vf x, vf y) { DP_EACH x.a[i] = x.a[i] + y.a[i]; return x; }
DP_INLINE vf operator-(vf x, vf y) { DP_EACH x.a[i] = x.a[i] - y.a[i]; return x; }
DP_INLINE vf operator*(vf x, vf y) { DP_EACH x.a[i] = x.a[i] * y.a[i]; return x; }
DP_INLINE vf operator/(vf x, vf y) { DP_EACH x.a[i] = x.a[i] / y.a[i]; return x; }
DP_INLINE vf fma(vf x, vf y, vf z) { DP_EACH z.a[i] = p_fma(x.a[i], y.a[i], z.a[i]); return z; }
DP_INLINE vf vmax(vf x, vf y) { DP_EACH x.a[i] = p_max(x.a[i], y.a[i]); return x; }
DP_INLINE vf vmin(vf x, vf y) { DP_EACH x.a[i] = p_min(x.a[i], y.a[i]); return x; }
DP_INLINE vf as_f(vu x) { vf r; DP_EACH r.a[i] = (V)x.a[i]; return r; }
// Lanes of x where the mask is all ones, of y where it is zero.
DP_INLINE vf select(vu mask, vf x, vf y) {
  DP_EACH x.a[i] = (V)((mask.a[i] & (VI)x.a[i]) | (~mask.a[i] & (VI)y.a[i]));
  return x;
}
DP_INLINE vf lo_half(vu x) { vf r; DP_EACH r.a[i] = (V)(x.a[i] << 16); return r; }
DP_INLINE vf hi_half(vu x) { vf r; DP_EACH r.a[i] = (V)(x.a[i] & p_set1u(0xffff0000u)); return r; }

// 16 bits per lane <-> 32; spelled out where compilers split the vectors.
DP_INLINE VI p_widen(const u16* p) {
#if defined(DP_AVX512)
  return (VI)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
#elif defined(DP_AVX2)
  return (VI)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
#else
  return __builtin_convertvector(p_load<VH>(p), VI);
#endif
}
DP_INLINE void p_narrow(u16* p, VI u) {
#if defined(DP_AVX512)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16((__m512i)u));
#else
  const VH h = __builtin_convertvector(u, VH);
  memcpy(p, &h, sizeof h);
#endif
}

// bfloat16 <-> float32, round to nearest even.
DP_INLINE float bf_to_f(u16 b) { u32 u = (u32)b << 16; float f; memcpy(&f, &u, 4); return f; }
DP_INLINE u16 f_to_bf(float f) {
  u32 u; memcpy(&u, &f, 4);
  return (u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
DP_INLINE vf ld_bf(const u16* p) {
  vf r;
  DP_EACH r.a[i] = (V)(p_widen(p + i * PL) << 16);
  return r;
}
DP_INLINE void st_bf(u16* p, vf x) {
  DP_EACH {
    VI u = (VI)x.a[i];
    p_narrow(p + i * PL, (u + p_set1u(0x7fffu) + ((u >> 16) & p_set1u(1u))) >> 16);
  }
}
DP_INLINE vf round_bf(vf x) {
  DP_EACH {
    const VI u = (VI)x.a[i];
    x.a[i] = (V)((u + p_set1u(0x7fffu) + ((u >> 16) & p_set1u(1u))) & p_set1u(0xffff0000u));
  }
  return x;
}
// The first n (< 16) lanes from memory, the rest zero.
DP_INLINE vf ld_n(const float* p, int n) {
  float t[LANES] = {0};
  memcpy(t, p, (size_t)n * 4);
  return ld(t);
}
DP_INLINE void st_n(float* p, vf x, int n) { memcpy(p, &x, (size_t)n * 4); }

// Horizontal sum and max in one fixed tree.
DP_INLINE float hsum(vf x) {
  float t[LANES];
  st(t, x);
  for (int w = LANES / 2; w; w /= 2)
    for (int i = 0; i < w; i++) t[i] = t[i] + t[i + w];
  return t[0];
}
DP_INLINE float hmax(vf x) {
  float t[LANES];
  st(t, x);
  for (int w = LANES / 2; w; w /= 2)
    for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
  return t[0];
}

// exp with about 1e-7 relative error; inputs are clamped to [-87.3, 88.3].
DP_INLINE vf vexp(vf x) {
  x = vmin(vmax(x, set1(-87.3f)), set1(88.3f));
  const vf magic = set1(12582912.f);
  vf n = (x * set1(1.44269504f) + magic) - magic;
  vf r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  vf p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, r * r, r + set1(1.f));
  DP_EACH {
    VS e = (__builtin_convertvector(n.a[i], VS) + 127) << 23;
    p.a[i] = p.a[i] * (V)e;
  }
  return p;
}
DP_INLINE float exp1(float x) { float t[LANES]; st(t, vexp(set1(x))); return t[0]; }
DP_INLINE vf silu(vf x) { return x / (set1(1.f) + vexp(zero() - x)); }
DP_INLINE vf vtanh(vf x) {
  vf e = vexp(vmin(vmax(x, set1(-20.f)), set1(20.f)) * set1(2.f));
  return (e - set1(1.f)) / (e + set1(1.f));
}

// How one packed vector of weights (or keys) meets one packed word of input.
//  F32: one float per step.  B16: a pair of bfloat16 per step; the input words
//  are pairs too when the target has a bf16 dot instruction, else two floats.
struct F32 {
  static constexpr int KS = 1, XW = 1, BYTES = 4;
  DP_INLINE vf mac(vf acc, vu w, const u32* x, int) { return fma(as_f(w), as_f(set1u(x[0])), acc); }
};
struct B16 {
#if defined(DP_BF16DOT)
  static constexpr int KS = 2, XW = 1, BYTES = 2;
  DP_INLINE vf mac(vf acc, vu w, const u32* x, int) {
    acc.a[0] = (V)_mm512_dpbf16_ps((__m512)acc.a[0], (__m512bh)w.a[0], (__m512bh)set1u(x[0]).a[0]);
    return acc;
  }
#else
  static constexpr int KS = 2, XW = 2, BYTES = 2;
  DP_INLINE vf mac(vf acc, vu w, const u32* x, int stride) {
    acc = fma(lo_half(w), as_f(set1u(x[0])), acc);
    return fma(hi_half(w), as_f(set1u(x[stride])), acc);
  }
#endif
};

// Towards the second-level cache: the first is too small for what comes next.
DP_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
