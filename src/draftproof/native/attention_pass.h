// The work of attention cut into items: (group of rows, kv head, chunk).
#pragma once
#include "attention.h"

// Scratch of one thread.
struct AttnScratch {
  std::vector<u32> kt;
  std::vector<float> block, scores, values;
  std::vector<Partial> partial, total;
  void fit(const Attn& a, int queries) {
    const size_t pad = a.padded();
    kt.resize((size_t)a.steps() * BLOCK);
    block.resize(pad * BLOCK);
    scores.resize((size_t)queries * CHUNK);
    values.resize(pad * queries * 2);
    partial.resize(queries), total.resize(queries);
    for (int i = 0; i < queries; i++) {
      partial[i] = {0.f, 0.f, values.data() + pad * i};
      total[i] = {0.f, 0.f, values.data() + pad * (queries + i)};
    }
  }
};

// Consecutive rows of one request, and one kv head of them.
struct RowGroup {
  const Attn& a;
  AttnScratch& s;
  int row0, rows, kv_head;
  Keys keys[GROUP_QUERIES];

  RowGroup(const Attn& attn, AttnScratch& scratch, int r0, int n, int head) : a(attn), s(scratch), row0(r0), rows(n), kv_head(head) {
    for (int r = 0; r < n; r++) keys[r] = keys_of(*a.plan, r0 + r, a.window, a.bidirectional);
  }
  const u32* query(int r, int g) const {
    return a.q + ((size_t)(row0 + r) * a.heads + kv_head * a.group() + g) * a.query_words();
  }

  // Calls f(keys, row list, n) for the rows with keys in [b0, b0 + BLOCK): all
  // rows that find them in the table at once, rows with extras one by one.
  template <class F> void each_list(int b0, F f) const {
    int shared[GROUP_QUERIES], n = 0;
    Keys all = {0, 0, 0, nullptr, nullptr};
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

  template <class M> void score_block(const Keys& k, int b0, const int* list, int n) {
    const int words = a.dim / M::KS;
    for (int c = 0; c < BLOCK; c += LANES) {
      const u32* key[LANES];
      for (int i = 0; i < LANES; i++) {
        const int j = std::min(std::max(b0 + c + i, k.lo), k.hi - 1);  // beyond: any key, masked later
        key[i] = M::KS == 2 ? (const u32*)pool<u16>(a.k, k.slot(j)) : pool<u32>(a.k, k.slot(j));
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

  static void mask(float* w, int lo, int hi, float value) {
    for (int i = 0; i < lo; i++) w[i] = value;
    for (int i = hi; i < LANES; i++) w[i] = value;
  }

  // Scores -> weights exp(s - max), with max and sum of the chunk.
  void soften(int c0, int r, int g) {
    Partial& p = s.partial[r * a.group() + g];
    float* w = s.scores.data() + (size_t)(r * a.group() + g) * CHUNK;
    const int lo = std::max(keys[r].lo - c0, 0), hi = std::min(keys[r].hi - c0, CHUNK);
    p.max = p.sum = 0.f;
    memset(p.values, 0, (size_t)a.padded() * 4);
    if (lo >= hi) return;
    const int v0 = lo / LANES * LANES;
    vf top = set1(-INFINITY);
    for (int v = v0; v < hi; v += LANES) {
      vf x = ld(w + v) * set1(a.scale);
      if (a.softcap > 0.f) x = vtanh(x / set1(a.softcap)) * set1(a.softcap);
      st(w + v, x);
      mask(w + v, lo - v, hi - v, -INFINITY);
      top = vmax(top, ld(w + v));
    }
    p.max = hmax(top);
    vf sum = zero();
    for (int v = v0; v < hi; v += LANES) {
      st(w + v, vexp(ld(w + v) - set1(p.max)));
      mask(w + v, lo - v, hi - v, 0.f);
      sum = sum + ld(w + v);
    }
    p.sum = hsum(sum);
  }

  void load_values(const Keys& k, int b0) {
    const int pad = a.padded();
    for (int j = k.lo; j < k.hi; j++) {
      float* out = s.block.data() + (size_t)(j - b0) * pad;
      const int slot = k.slot(j);
      for (int d = 0; d < a.dim; d += LANES) {
        const int n = std::min(LANES, a.dim - d);
        if (!a.bf16) {
          st(out + d, n == LANES ? ld(pool<float>(a.v, slot) + d) : ld_n(pool<float>(a.v, slot) + d, n));
        } else if (n == LANES) {
          st(out + d, ld_bf(pool<u16>(a.v, slot) + d));
        } else {
          u16 half[LANES] = {0};
          memcpy(half, pool<u16>(a.v, slot) + d, (size_t)n * 2);
          st(out + d, ld_bf(half));
        }
      }
    }
  }

  void value_rows(int b0, int r) {
    const int from = std::max(keys[r].lo - b0, 0), to = std::min(keys[r].hi - b0, BLOCK), pad = a.padded();
    for (int g0 = 0; g0 < a.group(); g0 += 4) {
      const int m = std::min(4, a.group() - g0);
      const float* w[4];
      float* out[4];
      for (int d = 0; d < pad; d += 4 * LANES) {
        for (int i = 0; i < m; i++) {
          const int query = r * a.group() + g0 + i;
          w[i] = s.scores.data() + (size_t)query * CHUNK + b0 % CHUNK;
          out[i] = s.partial[query].values + d;
        }
        run_values(m, std::min(4, (pad - d) / LANES), s.block.data() + d, pad, w, from, to, out);
      }
    }
  }
  template <int Q> static void run_cols(int c, const float* b, int pad, const float* const* w, int from, int to, float* const* out) {
    if (c == 4) value_tile<Q, 4>(b, pad, w, from, to, out);
    else if (c == 3) value_tile<Q, 3>(b, pad, w, from, to, out);
    else if (c == 2) value_tile<Q, 2>(b, pad, w, from, to, out);
    else value_tile<Q, 1>(b, pad, w, from, to, out);
  }
  static void run_values(int m, int c, const float* b, int pad, const float* const* w, int from, int to, float* const* out) {
    if (m == 4) run_cols<4>(c, b, pad, w, from, to, out);
    else if (m == 3) run_cols<3>(c, b, pad, w, from, to, out);
    else if (m == 2) run_cols<2>(c, b, pad, w, from, to, out);
    else run_cols<1>(c, b, pad, w, from, to, out);
  }

  // Asks for all keys and values of a chunk at once: they are scattered, and
  // waiting for them one by one costs more than the arithmetic.
  void request(int c0) const {
    const size_t bytes = (size_t)a.dim * (a.bf16 ? 2 : 4);
    for (const void* base : {a.k, a.v})
      for (int b0 = c0; b0 < c0 + CHUNK; b0 += BLOCK)
        each_list(b0, [&](const Keys& k, const int*, int) {
          for (int j = k.lo; j < k.hi; j++) {
            const char* p = (const char*)base + ((size_t)k.slot(j) * a.kv_heads + kv_head) * bytes;
            for (size_t at = 0; at < bytes; at += 64) prefetch(p + at);
          }
        });
  }

  // s.partial = the chunk that starts at logical position c0.
  void chunk(int c0) {
    request(c0);
    for (int b0 = c0; b0 < c0 + CHUNK; b0 += BLOCK)
      each_list(b0, [&](const Keys& k, const int* list, int n) {
        if (a.bf16) score_block<B16>(k, b0, list, n);
        else score_block<F32>(k, b0, list, n);
      });
    for (int r = 0; r < rows; r++)
      for (int g = 0; g < a.group(); g++) soften(c0, r, g);
    for (int b0 = c0; b0 < c0 + CHUNK; b0 += BLOCK)
      each_list(b0, [&](const Keys& k, const int* list, int n) {
        load_values(k, b0);
        for (int i = 0; i < n; i++) value_rows(b0, list[i]);
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

// How the rows of a plan are cut, the same for all layers of a pass.
struct RowGroups {
  std::vector<std::pair<int, int>> runs;  // first row, rows
  int chunks = 1;
  RowGroups(const Plan& p, int heads, int kv_heads, int threads) {
    const int group = heads / kv_heads, most = std::max(1, std::min(GROUP_ROWS, GROUP_QUERIES / group));
    const int size = std::max(1, std::min(most, p.rows * kv_heads / (3 * threads)));
    for (int r = 0; r < p.rows;) {
      int n = 1;
      while (n < size && r + n < p.rows && p.request[r + n] == p.request[r]) n++;
      runs.push_back({r, n});
      r += n;
    }
    int longest = 1;
    for (int r = 0; r < p.rows; r++) {
      const int extra = p.extra_ptr ? p.extra_ptr[r + 1] - p.extra_ptr[r] : 0;
      longest = std::max(longest, p.visible[r] + extra);
      if (p.visible_block) longest = std::max(longest, p.visible_block[r]);
    }
    chunks = (longest + CHUNK - 1) / CHUNK;
    // With enough items a thread folds the chunks of its item itself.
    if ((int)runs.size() * kv_heads >= 4 * threads) chunks = 1;
  }
};

// Partial results of chunks computed by different threads.
struct SplitStore {
  std::vector<float> data;  // [row][head][chunk]{max, sum, values}, 16 floats aside for the pair
  int stride = 0, chunks = 0, heads = 0;
  void fit(int rows, int h, int c, int padded) {
    stride = padded + LANES, chunks = c, heads = h;
    const size_t need = (size_t)rows * h * c * stride;
    if (data.size() < need) data.resize(need);
  }
  float* at(int row, int head, int c) { return data.data() + (((size_t)row * heads + head) * chunks + c) * stride; }
};

// Calls emit(row, head, values) for every row and head.
template <class E>
void attend_whole(Worker& t, const Attn& a, const RowGroups& cut, AttnScratch& s, E emit) {
  t.each((int)cut.runs.size() * a.kv_heads, 1, [&](int item, bool) {
    const auto run = cut.runs[item / a.kv_heads];
    RowGroup g(a, s, run.first, run.second, item % a.kv_heads);
    const int queries = g.rows * a.group();
    s.fit(a, queries);
    for (int i = 0; i < queries; i++) {
      s.total[i].max = s.total[i].sum = 0.f;
      memset(s.total[i].values, 0, (size_t)a.padded() * 4);
    }
    for (int c0 = g.begin(); c0 < g.end(); c0 += CHUNK) {
      g.chunk(c0);
      for (int i = 0; i < queries; i++) fold(s.total[i], s.partial[i], a.padded());
    }
    for (int i = 0; i < queries; i++) {
      const int head = g.kv_head * a.group() + i % a.group();
      finish(s.total[i], a.sinks ? a.sinks + head : nullptr, a.padded());
      emit(g.row0 + i / a.group(), head, s.total[i].values);
    }
  });
}

template <class E>
void attend_split(Worker& t, const Attn& a, const RowGroups& cut, AttnScratch& s, SplitStore& store, E emit) {
  const size_t bytes = (size_t)a.padded() * 4;
  t.each((int)cut.runs.size() * a.kv_heads * cut.chunks, 1, [&](int item, bool) {
    // The heads of a key are neighbours in memory: the same thread takes them
    // one after the other.
    const int c = item / a.kv_heads % cut.chunks;
    const auto run = cut.runs[item / a.kv_heads / cut.chunks];
    RowGroup g(a, s, run.first, run.second, item % a.kv_heads);
    s.fit(a, g.rows * a.group());
    g.chunk(c * CHUNK);
    for (int i = 0; i < g.rows * a.group(); i++) {
      float* out = store.at(g.row0 + i / a.group(), g.kv_head * a.group() + i % a.group(), c);
      out[0] = s.partial[i].max, out[1] = s.partial[i].sum;
      memcpy(out + LANES, s.partial[i].values, bytes);
    }
  });
  t.each(a.plan->rows * a.heads, 1, [&](int item, bool) {
    const int row = item / a.heads, head = item % a.heads;
    s.fit(a, 1);
    Partial& total = s.total[0];
    total.max = total.sum = 0.f;
    memset(total.values, 0, bytes);
    for (int c = 0; c < cut.chunks; c++) {
      float* p = store.at(row, head, c);
      fold(total, Partial{p[0], p[1], p + LANES}, a.padded());
    }
    finish(total, a.sinks ? a.sinks + head : nullptr, a.padded());
    emit(row, head, total.values);
  });
}

template <class E>
void attend(Worker& t, const Attn& a, const RowGroups& cut, AttnScratch& s, SplitStore& store, E emit) {
  if (cut.chunks > 1) attend_split(t, a, cut, s, store, emit);
  else attend_whole(t, a, cut, s, emit);
}
