// A small product and a small softmax against plain scalar code.  Returns 0,
// or the number of the check that failed.
#pragma once
#include "decoder.h"

inline float toy(int i) { return (float)((i * 37 + 11) % 23 - 11) / 8.f; }

inline int check_product(bool bf16, int rows) {
  const int n = 37, k = 21;
  std::vector<float> w(n * k), x(rows * k);
  for (int i = 0; i < n * k; i++) w[i] = toy(i);
  for (int i = 0; i < rows * k; i++) x[i] = toy(i + 5);
  std::vector<u16> half(n * k);
  for (int i = 0; i < n * k; i++) half[i] = f_to_bf(w[i]);
  std::vector<const void*> columns((size_t)panels_of(n) * NR, nullptr);
  for (int i = 0; i < n; i++) columns[i] = bf16 ? (const void*)(half.data() + i * k) : (const void*)(w.data() + i * k);
  Arena arena;
  const Packed m = pack(arena, columns, k, bf16);
  std::vector<u32> in((size_t)rows * m.row_words());
  const Blocks blocks(rows);
  for (int r = 0; r < rows; r++) RowWriter::of(in.data(), blocks, r, m.row_words(), bf16).put(0, x.data() + r * k, k);
  std::atomic<int> wrong{0};
  parallel([&](Worker& t) {
    gemm(t, m, 0, m.panels, in.data(), rows, nullptr, [&](int r0, int count, int p, const float* tile) {
      for (int i = 0; i < count; i++)
        for (int c = 0; c < NR && p * NR + c < n; c++) {
          float sum = 0.f;  // exact: the toy values are small multiples of 1/8
          for (int j = 0; j < k; j++) sum += w[(p * NR + c) * k + j] * x[(r0 + i) * k + j];
          if (!(tile[i * NR + c] == sum)) wrong++;
        }
    });
  });
  return wrong.load();
}

inline int selftest() {
  for (int rows : {1, 2, 5, MAX_MR, MAX_MR + 3}) {
    if (check_product(false, rows)) return 1;
    if (check_product(true, rows)) return 2;
  }
  for (int i = -80; i <= 80; i++) {
    const float x = (float)i * 0.93f, e = exp1(x), want = (float)exp((double)x);
    if (!(fabsf(e - want) <= 1e-6f * want)) return 3;
  }
  for (int i = -40; i <= 40; i++)
    if (bf_to_f(f_to_bf((float)i)) != (float)i) return 4;
  return 0;
}
