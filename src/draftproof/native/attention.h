// Attention over scattered keys.
//
// A row walks its keys in logical order, in chunks of CHUNK positions counted
// from position 0.  A chunk yields (max, sum, weighted values) from scratch and
// the chunks are folded in order.  Neither the rows that share the work nor the
// thread that computes a chunk can change the result of a row.
#pragma once
#include "gemm.h"
#include "plan.h"

constexpr int CHUNK = 256;  // keys per partial result
constexpr int BLOCK = 64;   // keys transposed at a time
constexpr int GROUP_ROWS = 8;
constexpr int GROUP_QUERIES = 64;

struct Attn {
  const Plan* plan;
  int heads, kv_heads, dim;
  bool bf16;
  float scale, softcap;  // softcap 0 = none
  int window;            // 0 = none
  bool bidirectional;
  const float* sinks;    // per head, or null
  const void *k, *v;     // [slots, kv_heads, dim]
  const u32* q;          // [rows, heads, query words], as RowWriter with stride 1
  const int32_t* map;    // from the plan's slots to the pools'; null: the same
  int group() const { return heads / kv_heads; }
  int steps() const { return bf16 ? dim / 2 : dim; }
  int query_words() const { return steps() * (bf16 ? B16::XW : F32::XW); }
  int padded() const { return (dim + LANES - 1) / LANES * LANES; }
};

// (max, sum, values[padded dim]) of some of a query's keys.
struct Partial {
  float max, sum;
  float* values;
};

// An empty result has sum 0; its values are not looked at.
inline void fold(Partial& into, const Partial& p, int padded) {
  if (p.sum == 0.f) return;
  if (into.sum == 0.f) {
    into.max = p.max, into.sum = p.sum;
    memcpy(into.values, p.values, (size_t)padded * 4);
    return;
  }
  const float top = into.max > p.max ? into.max : p.max;
  const float a = exp1(into.max - top), b = exp1(p.max - top);
  into.sum = into.sum * a + p.sum * b;
  into.max = top;
  for (int i = 0; i < padded; i += LANES)
    st(into.values + i, ld(into.values + i) * set1(a) + ld(p.values + i) * set1(b));
}

// Ends a query: the sink joins the denominator, the sum divides the values.
inline void finish(Partial& p, const float* sink, int padded) {
  float scale = 1.f, sum = p.sum;
  if (sink) {
    const float top = sum == 0.f || *sink > p.max ? *sink : p.max;
    scale = sum == 0.f ? 0.f : exp1(p.max - top);
    sum = sum * scale + exp1(*sink - top);
  }
  const float inverse = p.sum == 0.f ? 0.f : scale / sum;
  for (int i = 0; i < padded; i += LANES) st(p.values + i, p.sum == 0.f ? zero() : ld(p.values + i) * set1(inverse));
}

// 16 keys of `words` words each -> out[word][BLOCK] columns.
inline void transpose_keys(const u32* const* key, int words, u32* out) {
  int w = 0;
#if defined(DP_AVX512)
  for (; w + 16 <= words; w += 16) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(key[i] + w);
    for (int i = 0; i < 16; i += 2) {
      b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
      a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
      a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
      a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
      const __m512i e0 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88), e1 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
      const __m512i o0 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd), o1 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
      u32* o = out + (size_t)(w + i) * BLOCK;
      _mm512_storeu_si512(o, _mm512_shuffle_i32x4(e0, e1, 0x88));
      _mm512_storeu_si512(o + 4 * BLOCK, _mm512_shuffle_i32x4(o0, o1, 0x88));
      _mm512_storeu_si512(o + 8 * BLOCK, _mm512_shuffle_i32x4(e0, e1, 0xdd));
      _mm512_storeu_si512(o + 12 * BLOCK, _mm512_shuffle_i32x4(o0, o1, 0xdd));
    }
  }
#endif
  for (; w < words; w++)
    for (int i = 0; i < 16; i++) out[(size_t)w * BLOCK + i] = key[i][w];
}

// Raw scores of Q queries against the transposed block.
template <class M, int Q>
static void score_tile(const u32* kt, const u32* const* q, int steps, float* const* out) {
  constexpr int COLS = BLOCK / LANES;
  vf acc[Q][COLS];
#pragma GCC unroll 8
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < COLS; c++) acc[i][c] = zero();
  for (int s = 0; s < steps; s++) {
#pragma GCC unroll 8
    for (int c = 0; c < COLS; c++) {
      const vu k = ldu(kt + (size_t)s * BLOCK + c * LANES);
#pragma GCC unroll 8
      for (int i = 0; i < Q; i++) acc[i][c] = M::mac(acc[i][c], k, q[i] + s * M::XW, 1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < COLS; c++) st(out[i] + c * LANES, acc[i][c]);
}

// values[0..16*C) += sum over the steps of weight * value words, in order.
template <class M, int Q, int C>
static void value_tile(const u32* block, int padded, const u32* const* weight, int steps, float* const* values) {
  vf acc[Q][C];
#pragma GCC unroll 8
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) acc[i][c] = ld(values[i] + c * LANES);
  for (int s = 0; s < steps; s++) {
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) {
      const vu x = ldu(block + (size_t)s * padded + c * LANES);
#pragma GCC unroll 8
      for (int i = 0; i < Q; i++) acc[i][c] = M::mac(acc[i][c], x, weight[i] + s * M::XW, 1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) st(values[i] + c * LANES, acc[i][c]);
}

// Words of one step of values: a row, or two bfloat16 rows lane by lane.
// Absent rows count as zero, so that a weight of zero meets nothing else.
inline void value_words(const float* row, const float*, int dim, u32* out) {
  memcpy(out, row, (size_t)dim * 4);
}
inline void value_words(const u16* even, const u16* odd, int dim, u32* out) {
  int d = 0;
  for (; d + LANES <= dim; d += LANES) {
    vu lo, hi;
    DP_EACH {
      lo.a[i] = even ? p_widen(even + d + i * PL) : p_set1u(0);
      hi.a[i] = odd ? p_widen(odd + d + i * PL) : p_set1u(0);
      lo.a[i] = lo.a[i] | (hi.a[i] << 16);
    }
    memcpy(out + d, &lo, sizeof lo);
  }
  for (; d < dim; d++) out[d] = (even ? even[d] : 0u) | (odd ? (u32)odd[d] << 16 : 0u);
}
