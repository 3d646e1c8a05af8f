// A few consecutive rows and the keys of one kv head, one chunk at a time.
#pragma once
#include "attention.h"

// Scratch of one thread.
struct AttnScratch {
  std::vector<u32> kt, block;
  std::vector<float> scores, values;
  std::vector<Partial> partial, total;
  // Room for the partial results of `queries` and the totals of `totals`.
  void fit(const Attn& a, int queries, int totals) {
    const size_t pad = a.padded();
    kt.resize((size_t)a.steps() * BLOCK);
    block.resize(pad * BLOCK);
    scores.resize((size_t)queries * CHUNK);
    values.resize(pad * (queries + totals));
    partial.resize(queries), total.resize(totals);
    for (int i = 0; i < queries; i++) partial[i] = {0.f, 0.f, values.data() + pad * i};
    for (int i = 0; i < totals; i++) total[i] = {0.f, 0.f, values.data() + pad * (queries + i)};
  }
};

// Consecutive rows of one request, and one kv head of them.
struct RowGroup {
  const Attn& a;
  AttnScratch& s;
  int row0, rows, kv_head;
  Keys keys[GROUP_QUERIES];

  RowGroup(const Attn& attn, AttnScratch& scratch, int r0, int n, int head) : a(attn), s(scratch), row0(r0), rows(n), kv_head(head) {
    for (int r = 0; r < n; r++) keys[r] = keys_of(*a.plan, r0 + r, a.window, a.bidirectional, a.map);
  }
  const u32* query(int r, int g) const {
    return a.q + ((size_t)(row0 + r) * a.heads + kv_head * a.group() + g) * a.query_words();
  }

  // Calls f(keys, row list, n) for the rows with keys in [b0, b0 + BLOCK): all
  // rows that find them in the table at once, rows with extras one by one.
  template <class F> void each_list(int b0, F f) const {
    int shared[GROUP_QUERIES], n = 0;
    Keys all = {0, 0, 0, nullptr, nullptr, nullptr};
    for (int r = 0; r < rows; r++) {
      Keys k = keys[r];
      k.lo = std::max(k.lo, b0), k.hi = std::min(k.hi, b0 + BLOCK);
      if (k.lo >= k.hi) continue;
      if (k.hi > k.tabled) {
        f(k, &r, 1);
        continue;
      }
      if (n == 0) all = k;
      all.lo = std::min(all.lo, k.lo), all.hi = std::max(all.hi, k.hi), all.tabled = all.hi;
      shared[n++] = r;
    }
    if (n) f(all, shared, n);
  }

  template <class T> const T* pool(const void* base, int slot) const {
    return (const T*)base + ((size_t)slot * a.kv_heads + kv_head) * a.dim;
  }

  template <class M, class T> void score_block(const Keys& k, int b0, const int* list, int n) {
    const int words = a.dim / M::KS;
    for (int c = 0; c < BLOCK; c += LANES) {
      const u32* key[LANES];
      for (int i = 0; i < LANES; i++) {
        const int j = std::min(std::max(b0 + c + i, k.lo), k.hi - 1);  // beyond: any key, masked later
        key[i] = (const u32*)pool<T>(a.k, k.slot(j));
      }
      if (b0 + c < k.hi && b0 + c + LANES > k.lo) transpose_keys(key, words, s.kt.data() + c);
    }
    const u32* q[4];
    float* out[4];
    int m = 0;
    for (int i = 0; i < n; i++)
      for (int g = 0; g < a.group(); g++) {
        q[m] = query(list[i], g);
        out[m++] = s.scores.data() + (size_t)(list[i] * a.group() + g) * CHUNK + b0 % CHUNK;
        if (m == 4 || (i == n - 1 && g == a.group() - 1)) {
          run_scores<M>(m, q, out);
          m = 0;
        }
      }
  }
  template <class M> void run_scores(int m, const u32* const* q, float* const* out) {
    const u32* kt = s.kt.data();
    if (m == 4) score_tile<M, 4>(kt, q, a.steps(), out);
    else if (m == 3) score_tile<M, 3>(kt, q, a.steps(), out);
    else if (m == 2) score_tile<M, 2>(kt, q, a.steps(), out);
    else score_tile<M, 1>(kt, q, a.steps(), out);
  }

  // All ones in the lanes lo..hi-1, else zero.
  static vu lanes(int lo, int hi) {
    u32 m[LANES];
    for (int i = 0; i < LANES; i++) m[i] = i >= lo && i < hi ? ~0u : 0u;
    return ldu(m);
  }

  // Scores -> weights exp(s - max), with max and sum of the chunk.  Weights are
  // rounded before they are summed, so that they add up to one.
  void soften(int c0, int r, int g) {
    Partial& p = s.partial[r * a.group() + g];
    float* w = s.scores.data() + (size_t)(r * a.group() + g) * CHUNK;
    const int lo = std::max(keys[r].lo - c0, 0), hi = std::min(keys[r].hi - c0, CHUNK), v0 = lo / LANES * LANES;
    p.max = p.sum = 0.f;
    memset(p.values, 0, (size_t)a.padded() * 4);
    if (lo >= hi) return;
    vf top = set1(-INFINITY);
    for (int v = v0; v < hi; v += LANES) {
      vf x = ld(w + v) * set1(a.scale);
      if (a.softcap > 0.f) x = vtanh(x / set1(a.softcap)) * set1(a.softcap);
      if (v < lo || v + LANES > hi) x = select(lanes(lo - v, hi - v), x, set1(-INFINITY));
      st(w + v, x);
      top = vmax(top, x);
    }
    p.max = hmax(top);
    vf sum = zero();
    for (int v = v0; v < hi; v += LANES) {
      vf x = vexp(ld(w + v) - set1(p.max));
      if (v < lo || v + LANES > hi) x = select(lanes(lo - v, hi - v), x, zero());
      if (a.bf16) x = round_bf(x);
      sum = sum + x;
      // Pairs of bfloat16 take half the room; they overwrite what was read.
      if (a.bf16 && B16::XW == 1) st_bf((u16*)(w + v / BLOCK * BLOCK) + v % BLOCK, x);
      else st(w + v, x);
    }
    p.sum = hsum(sum);
  }

  template <class M, class T> void load_values(const Keys& k, int b0) {
    const int pad = a.padded();
    for (int j = (k.lo - b0) / M::KS * M::KS; j < k.hi - b0; j += M::KS) {
      const int even = b0 + j, odd = even + M::KS - 1;
      const T* first = even >= k.lo ? pool<T>(a.v, k.slot(even)) : nullptr;
      const T* second = odd < k.hi ? pool<T>(a.v, k.slot(odd)) : nullptr;
      value_words(first, second, a.dim, s.block.data() + (size_t)(j / M::KS) * pad);
    }
  }

  template <class M> void value_rows(int b0, int r) {
    const int from = std::max(keys[r].lo - b0, 0) / M::KS, to = (std::min(keys[r].hi - b0, BLOCK) + M::KS - 1) / M::KS;
    const int pad = a.padded();
    for (int g0 = 0; g0 < a.group(); g0 += 4) {
      const int m = std::min(4, a.group() - g0);
      const u32* w[4];
      float* out[4];
      for (int d = 0; d < pad; d += 4 * LANES) {
        for (int i = 0; i < m; i++) {
          const int query = r * a.group() + g0 + i;
          w[i] = (const u32*)(s.scores.data() + (size_t)query * CHUNK + b0 % CHUNK) + from * M::XW;
          out[i] = s.partial[query].values + d;
        }
        run_values<M>(m, std::min(4, (pad - d) / LANES), s.block.data() + (size_t)from * pad + d, pad, w, to - from, out);
      }
    }
  }
  template <class M, int Q> static void run_cols(int c, const u32* b, int pad, const u32* const* w, int steps, float* const* out) {
    if (c == 4) value_tile<M, Q, 4>(b, pad, w, steps, out);
    else if (c == 3) value_tile<M, Q, 3>(b, pad, w, steps, out);
    else if (c == 2) value_tile<M, Q, 2>(b, pad, w, steps, out);
    else value_tile<M, Q, 1>(b, pad, w, steps, out);
  }
  template <class M> static void run_values(int m, int c, const u32* b, int pad, const u32* const* w, int steps, float* const* out) {
    if (m == 4) run_cols<M, 4>(c, b, pad, w, steps, out);
    else if (m == 3) run_cols<M, 3>(c, b, pad, w, steps, out);
    else if (m == 2) run_cols<M, 2>(c, b, pad, w, steps, out);
    else run_cols<M, 1>(c, b, pad, w, steps, out);
  }

  // s.partial = the chunk that starts at logical position c0.
  void chunk(int c0) {
    if (a.bf16) chunk_of<B16, u16>(c0);
    else chunk_of<F32, float>(c0);
  }
  template <class M, class T> void chunk_of(int c0) {
    for (int b0 = c0; b0 < c0 + CHUNK; b0 += BLOCK)
      each_list(b0, [&](const Keys& k, const int* list, int n) { score_block<M, T>(k, b0, list, n); });
    for (int r = 0; r < rows; r++)
      for (int g = 0; g < a.group(); g++) soften(c0, r, g);
    for (int b0 = c0; b0 < c0 + CHUNK; b0 += BLOCK)
      each_list(b0, [&](const Keys& k, const int* list, int n) {
        load_values<M, T>(k, b0);
        for (int i = 0; i < n; i++) value_rows<M>(b0, list[i]);
      });
  }

  // Reads a word of every cache line of a chunk's keys and values, all heads
  // in a row: the order that the memory likes best.
  void touch(int c0) const {
    const size_t bytes = (size_t)a.kv_heads * a.dim * (a.bf16 ? 2 : 4);
    for (const void* base : {a.k, a.v})
      for (int b0 = c0; b0 < c0 + CHUNK; b0 += BLOCK)
        each_list(b0, [&](const Keys& k, const int*, int) {
          for (int j = k.lo; j < k.hi; j++) {
            const char* p = (const char*)base + (size_t)k.slot(j) * bytes;
            for (size_t at = 0; at < bytes; at += 64) (void)*(const volatile char*)(p + at);
          }
        });
  }
  int end() const {
    int hi = 0;
    for (int r = 0; r < rows; r++) hi = std::max(hi, keys[r].hi);
    return hi;
  }
  int begin() const {
    int lo = keys[0].lo;
    for (int r = 1; r < rows; r++) lo = std::min(lo, keys[r].lo);
    return lo / CHUNK * CHUNK;
  }
};
