// C interface, loaded with ctypes.
#include <new>
#include "decoder_pass.h"
#include "row_stats.h"
#include "selftest.h"

#define API extern "C" __attribute__((visibility("default")))

struct Linear {
  Arena arena;
  Packed m;
  int n = 0, k = 0;
  std::vector<u32> x;
  std::mutex use;  // x serves one call at a time
};

API void dp_runtime(void* parallel_entry, void* thread_num, void* num_threads) {
  Runtime& rt = runtime();
  rt.gomp_parallel = (void (*)(void (*)(void*), void*, unsigned, unsigned))parallel_entry;
  rt.thread_num = (int (*)())thread_num;
  rt.num_threads = (int (*)())num_threads;
}
API void dp_set_threads(int n) { runtime().threads = std::max(1, std::min(n, MAX_THREADS)); }
API int dp_selftest() { return selftest(); }
API const char* dp_target() {
#if defined(DP_BF16DOT)
  return "avx512_bf16";
#elif defined(DP_AVX512)
  return "avx512";
#elif defined(DP_AVX2)
  return "avx2";
#else
  return "generic";
#endif
}

// weight [n, k] in float32 or bfloat16, bias [n] float32 or null.
API void* dp_linear_new(const void* weight, int n, int k, int bf16, const float* bias) try {
  Linear* l = new Linear;
  l->n = n, l->k = k;
  std::vector<const void*> columns((size_t)panels_of(n) * NR, nullptr);
  for (int i = 0; i < n; i++) columns[i] = (const char*)weight + (size_t)i * k * (bf16 ? 2 : 4);
  l->arena.expect(packed_bytes(panels_of(n), k, bf16) + (size_t)panels_of(n) * NR * 4);
  l->m = pack(l->arena, columns, k, bf16);
  if (bias) {
    l->m.bias = (float*)l->arena.get((size_t)l->m.panels * NR * 4);
    memcpy(l->m.bias, bias, (size_t)n * 4);
  }
  return l;
} catch (const std::bad_alloc&) {
  return nullptr;
}
API void dp_linear_free(void* l) { delete (Linear*)l; }

// y [rows, n] = x [rows, k] @ weight.T + bias; x is float32 or bfloat16.
API int dp_linear_run(void* handle, const void* x, int x_bf16, int rows, float* y) try {
  Linear& l = *(Linear*)handle;
  std::lock_guard<std::mutex> guard(l.use);
  const Blocks blocks(rows);
  const int words = l.m.row_words();
  fit(l.x, (size_t)rows * words);
  parallel([&](Worker& t) {
    t.each(rows, 1, [&](int r, bool) {
      RowWriter w = RowWriter::of(l.x.data(), blocks, r, words, l.m.bf16);
      if (!x_bf16) {
        w.put(0, (const float*)x + (size_t)r * l.k, l.k);
        return;
      }
      const u16* in = (const u16*)x + (size_t)r * l.k;
      if (l.m.bf16) {
        w.put_bf(0, in, l.k);
        return;
      }
      for (int i = 0; i < l.k; i++) {
        const float f = bf_to_f(in[i]);
        w.put(i, &f, 1);
      }
    });
    gemm(t, l.m, 0, l.m.panels, l.x.data(), rows, nullptr, [&](int r0, int n, int p, const float* tile) {
      const int cols = std::min(NR, l.n - p * NR);
      for (int i = 0; i < n; i++) memcpy(y + (size_t)(r0 + i) * l.n + (size_t)p * NR, tile + i * NR, (size_t)cols * 4);
    });
  });
  return 0;
} catch (const std::bad_alloc&) {
  return -1;
}

API void* dp_decoder_new(const DecoderSpec* spec) try { return new Decoder(*spec); } catch (const std::bad_alloc&) { return nullptr; }
API int dp_decoder_layer(void* m, const LayerSpec* layer) try {
  ((Decoder*)m)->add_layer(*layer);
  return 0;
} catch (const std::bad_alloc&) {
  return -1;
}
API void dp_decoder_free(void* m) { delete (Decoder*)m; }

API PlanFault dp_check_plan(const Plan* plan, int num_slots, int writes) { return check_plan(*plan, num_slots, writes); }
API PlanFault dp_check_map(const Plan* plan, const int32_t* map, int pool_slots, int window, int bidirectional, int writes) {
  return check_map(*plan, map, pool_slots, window, bidirectional != 0, writes != 0);
}

API int dp_decoder_forward(void* m, const Plan* plan, void* const* kv, const int32_t* const* maps, const float* x, const int32_t* taps, int n_taps, float* out, float* tap_out) try {
  std::lock_guard<std::mutex> guard(((Decoder*)m)->use);
  Pass(*(Decoder*)m, *plan, kv, maps).forward(x, taps, n_taps, out, tap_out);
  return 0;
} catch (const std::bad_alloc&) {
  return -1;
}
API int dp_decoder_append(void* m, const Plan* plan, void* const* kv, const int32_t* const* maps, const float* x) try {
  std::lock_guard<std::mutex> guard(((Decoder*)m)->use);
  Pass(*(Decoder*)m, *plan, kv, maps).append(x);
  return 0;
} catch (const std::bad_alloc&) {
  return -1;
}

struct AttentionSpec {  // mirrors attention.py
  int32_t heads, kv_heads, head_dim, bf16, window, bidirectional;
  float scale, softcap;
  const float* sinks;
};

// q, out [rows, heads, head_dim] in the dtype of the pools.
API int dp_attention(const AttentionSpec* spec, const Plan* plan, const void* q, const void* k, const void* v, const int32_t* map, void* out) try {
  Attn a{plan, spec->heads, spec->kv_heads, spec->head_dim, spec->bf16 != 0, spec->scale, spec->softcap, spec->window, spec->bidirectional != 0, spec->sinks, k, v, nullptr, map};
  const int dim = a.dim;
  const RowGroups cut(*plan, a.heads, a.kv_heads, runtime().threads);
  std::vector<AttnScratch> scratch(MAX_THREADS);
  SplitStore split;
  if (cut.chunks > 1) split.fit(plan->rows, a.heads, cut.chunks, a.padded());
  std::vector<u32> words((size_t)plan->rows * a.heads * a.query_words());
  for (size_t i = 0; i < (size_t)plan->rows * a.heads; i++) {
    RowWriter w(words.data() + i * a.query_words(), 0, 1, 0, 0, a.bf16);
    if (a.bf16) w.put_bf(0, (const u16*)q + i * dim, dim);
    else w.put(0, (const float*)q + i * dim, dim);
  }
  a.q = words.data();
  parallel([&](Worker& t) {
    attend(t, a, cut, scratch[t.id], split, [&](int r, int h, const float* values) {
      const size_t at = ((size_t)r * a.heads + h) * dim;
      for (int i = 0; i < dim; i++) {
        if (a.bf16) ((u16*)out)[at + i] = f_to_bf(values[i]);
        else ((float*)out)[at + i] = values[i];
      }
    });
  });
  return 0;
} catch (const std::bad_alloc&) {
  return -1;
}

// Of every row of x [rows, n].
API void dp_row_stats(const float* x, int rows, int n, int with_lse, float* largest, int32_t* at, float* lse) {
  parallel([&](Worker& t) {
    t.each(rows, 1, [&](int r, bool) {
      const RowStats s = row_stats(x + (size_t)r * n, n, with_lse != 0);
      largest[r] = s.largest, at[r] = s.at;
      if (with_lse) lse[r] = s.lse;
    });
  });
}

API void dp_rms_norm(const float* x, const float* weight, float* y, int rows, int n, float eps) {
  for (int r = 0; r < rows; r++) rms_norm(x + (size_t)r * n, weight, y + (size_t)r * n, n, eps);
}

// Asks for large pages under [p, p + bytes); only a hint.
API void dp_advise(void* p, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  const uintptr_t page = 4096, from = ((uintptr_t)p + page - 1) / page * page, to = ((uintptr_t)p + bytes) / page * page;
  if (to > from) madvise((void*)from, to - from, MADV_HUGEPAGE);
#else
  (void)p, (void)bytes;
#endif
}

// Reads every float of x with all threads; the sum keeps the reads alive.
API float dp_read(const float* x, size_t n) {
  std::atomic<float> total{0.f};
  const size_t piece = (size_t)1 << 16;
  parallel([&](Worker& t) {
    vf acc[4] = {zero(), zero(), zero(), zero()};
    t.each((int)(n / piece), 1, [&](int i, bool) {
      const float* p = x + (size_t)i * piece;
      for (size_t j = 0; j < piece; j += 4 * LANES)
        for (int k = 0; k < 4; k++) acc[k] = acc[k] + ld(p + j + k * LANES);
    });
    const float sum = hsum(acc[0] + acc[1] + acc[2] + acc[3]);
    float old = total.load();
    while (!total.compare_exchange_weak(old, old + sum)) {
    }
  });
  return total.load();
}
