// Packed matrices and the register-blocked product.
//
// Weights: panels of 32 output columns, step-major, so one step is two vectors
// (128 bytes) and a panel is one linear stream.  Inputs: blocks of rows, word w
// of row i of a block at [w * rows + i].  Every output element is one chain of
// `mac` over the steps, whatever the number of rows, the block it falls in or
// the thread that computes it: rows are bit-for-bit independent of each other.
#pragma once
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>
#include "team.h"

constexpr int NR = 2 * LANES;  // columns of a panel
#if defined(DP_AVX512)
constexpr int MAX_MR = 12;
#else
constexpr int MAX_MR = 3;
#endif
constexpr int SUPER_ROWS = 42 * MAX_MR;  // rows whose inputs are swept per visit of a panel

constexpr int NEAR = 8192;                // bytes, prefetch distance for one block of rows

// Bump allocator over huge-page friendly chunks; freed as a whole.
class Arena {
 public:
  ~Arena() {
    for (auto& c : chunks_) munmap(c.first, c.second);
  }
  void* get(size_t bytes) {
    bytes = (bytes + 255) & ~(size_t)255;
    if (bytes > left_) grow(bytes);
    void* p = at_;
    at_ += bytes;
    left_ -= bytes;
    return p;
  }
  // `expect` lets one chunk hold everything that is to come.
  void expect(size_t bytes) { grow(bytes); }

 private:
  void grow(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    const size_t size = (std::max(bytes, huge) + 2 * huge - 1) / huge * huge;
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    madvise(p, size, MADV_HUGEPAGE);
#endif
    chunks_.push_back({p, size});
    at_ = (char*)(((uintptr_t)p + huge - 1) / huge * huge);
    left_ = size - (size_t)(at_ - (char*)p);
  }
  std::vector<std::pair<void*, size_t>> chunks_;
  char* at_ = nullptr;
  size_t left_ = 0;
};

struct Packed {
  u32* w = nullptr;
  float* bias = nullptr;  // one per padded column, or null
  bool bf16 = false;
  int steps = 0, panels = 0;
  size_t panel_words() const { return (size_t)steps * NR; }
  int row_words() const { return steps * (bf16 ? B16::XW : F32::XW); }
  const u32* panel(int p) const { return w + p * panel_words(); }
};

inline int panels_of(int columns) { return (columns + NR - 1) / NR; }
inline int steps_of(int k, bool bf16) { return bf16 ? (k + 1) / 2 : k; }
inline size_t packed_bytes(int panels, int k, bool bf16) { return (size_t)panels * steps_of(k, bf16) * NR * 4 + 4096; }

// columns[c] = the k weights of padded column c, or null for zeros.
inline Packed pack(Arena& arena, const std::vector<const void*>& columns, int k, bool bf16) {
  Packed m;
  m.bf16 = bf16;
  m.steps = steps_of(k, bf16);
  m.panels = (int)columns.size() / NR;
  m.w = (u32*)arena.get(packed_bytes(m.panels, k, bf16));
  parallel([&](Worker& t) {
    t.each(m.panels, 1, [&](int p, bool) {
      u32* out = m.w + p * m.panel_words();
      for (int c = 0; c < NR; c++) {
        const void* col = columns[(size_t)p * NR + c];
        if (!col) continue;  // fresh mappings are zero
        if (!bf16) {
          for (int s = 0; s < m.steps; s++) out[(size_t)s * NR + c] = ((const u32*)col)[s];
          continue;
        }
        const u16* b = (const u16*)col;
        for (int s = 0; s < m.steps; s++)
          out[(size_t)s * NR + c] = b[2 * s] | (2 * s + 1 < k ? (u32)b[2 * s + 1] << 16 : 0u);
      }
    });
  });
  return m;
}

// rows -> blocks of at most MAX_MR rows, as equal as possible.
struct Blocks {
  int rows, count;
  explicit Blocks(int r) : rows(r), count((r + MAX_MR - 1) / MAX_MR) {}
  int first(int b) const { return (int)((int64_t)rows * b / count); }
  int of(int row) const {
    int b = (int)((int64_t)row * count / rows);
    while (first(b + 1) <= row) b++;
    while (first(b) > row) b--;
    return b;
  }
};

// Writes rows into the blocked input layout, rounding to bfloat16 if needed.
struct RowWriter {
  u32* at;
  int stride;
  bool bf16;
  // Row i of the block of `rows` rows that starts at row r0.
  RowWriter(u32* base, int r0, int rows, int i, int row_words, bool bf)
      : at(base + (size_t)r0 * row_words + i), stride(rows), bf16(bf) {}
  static RowWriter of(u32* base, const Blocks& blocks, int row, int row_words, bool bf) {
    const int b = blocks.of(row), r0 = blocks.first(b);
    return RowWriter(base, r0, blocks.first(b + 1) - r0, row - r0, row_words, bf);
  }
  // n values to columns k..k+n-1; k is even, and n too unless it ends the row.
  void put(int k, const float* v, int n) const {
    if (!bf16) {
      u32* out = at + (size_t)k * stride;
      const size_t step = stride;
      for (int i = 0; i < n; i++) memcpy(out + i * step, v + i, 4);
      return;
    }
    for (int i = 0; i < n; i += LANES) {
      const int m = std::min(LANES, n - i);
      alignas(64) u16 h[LANES];
      st_bf(h, m == LANES ? ld(v + i) : ld_n(v + i, m));
      put_bf(k + i, h, m);
    }
  }
  void put_bf(int k, const u16* h, int n) const {
    // Copies in locals: the stores below could alias the members.
    const size_t step = (size_t)stride;
    u32* out = at + (size_t)(k / 2 * B16::XW) * step;
    for (int j = 0; j < n; j += 2) {
      u32 pair = h[j];
      if (j + 1 < n) memcpy(&pair, h + j, 4);
      if (B16::XW == 1) {
        *out = pair;
      } else {
        out[0] = pair << 16;
        out[step] = pair & 0xffff0000u;
      }
      out += B16::XW * step;
    }
  }
};

// MR rows x 32 columns.  Meanwhile the cache lines at `ahead` are requested,
// `gap` bytes per step (none if gap is 0).
template <class M, int MR>
static void tile(const u32* w, const u32* x, int steps, float* out, const char* ahead, int gap) {
  vf acc[MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) acc[i][0] = acc[i][1] = zero();
  for (int s = 0; s < steps; s++) {
    const vu w0 = ldu(w), w1 = ldu(w + LANES);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      acc[i][0] = M::mac(acc[i][0], w0, x + i, MR);
      acc[i][1] = M::mac(acc[i][1], w1, x + i, MR);
    }
    if (gap) {
      prefetch(ahead);
      if (gap > 64) prefetch(ahead + 64);
      ahead += gap;
    }
    w += NR;
    x += M::XW * MR;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
    st(out + i * NR, acc[i][0]);
    st(out + i * NR + LANES, acc[i][1]);
  }
}

typedef void (*TileFn)(const u32*, const u32*, int, float*, const char*, int);
template <class M> inline TileFn tile_fn(int mr) {
  static const TileFn table[] = {
      nullptr, tile<M, 1>, tile<M, 2>, tile<M, 3>,
#if defined(DP_AVX512)
      tile<M, 4>, tile<M, 5>, tile<M, 6>, tile<M, 7>, tile<M, 8>, tile<M, 9>, tile<M, 10>, tile<M, 11>, tile<M, 12>,
#endif
  };
  return table[mr];
}

// Panels [first, first + count) times the packed rows x; `next` is the matrix
// that follows (its first panel is prefetched at the end of a thread's range).
// epilogue(row0, rows, panel, tile values [rows][32]) consumes each tile.
template <class E>
void gemm(Worker& t, const Packed& m, int first, int count, const u32* x, int rows, const Packed* next, E epilogue) {
  const Blocks blocks(rows);
  const int sweep = SUPER_ROWS / MAX_MR, sweeps = (blocks.count + sweep - 1) / sweep;
  const int words = m.row_words();
  t.each(count * sweeps, 1, [&](int item, bool last) {
    const int p = first + item % count, b0 = item / count * sweep, b1 = std::min(blocks.count, b0 + sweep);
    const u32* w = m.panel(p);
    const char* ahead = (const char*)(w + m.panel_words());
    if (last) ahead = next ? (const char*)next->panel((int)((int64_t)next->panels * t.id / t.team.size)) : (const char*)w;
    const int n = b1 - b0;
    // Two rows: the hardware's prefetcher does best alone.  One block: a steady
    // distance ahead.  Several blocks share the streaming of the next panel.
    const int gap = rows <= 2 ? 0 : std::max(1, NR * 4 / n);
    if (n == 1) ahead = (const char*)w + NEAR;
    alignas(64) float out[MAX_MR * NR];
    for (int b = b0; b < b1; b++) {
      const int r0 = blocks.first(b), mr = blocks.first(b + 1) - r0;
      const TileFn fn = m.bf16 ? tile_fn<B16>(mr) : tile_fn<F32>(mr);
      fn(w, x + (size_t)r0 * words, m.steps, out, ahead + (size_t)(b - b0) * gap * m.steps, gap);
      if (m.bias) {
        for (int i = 0; i < mr; i++)
          for (int c = 0; c < NR; c++) out[i * NR + c] = out[i * NR + c] + m.bias[p * NR + c];
      }
      epilogue(r0, mr, p, out);
    }
  });
}
