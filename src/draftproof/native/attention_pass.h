// The work of attention cut into items: (run of rows, kv heads, chunks).
#pragma once
#include "row_group.h"

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
    // With enough runs a thread folds the chunks of its run itself.
    if ((int)runs.size() >= 4 * threads) chunks = 1;
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
  // A thread that takes all heads of a chunk reads each key's memory at once.
  const int runs = (int)cut.runs.size(), parts = runs >= 2 * t.team.size ? 1 : a.kv_heads;
  t.each(runs * parts, 1, [&](int item, bool) {
    const auto run = cut.runs[item / parts];
    const int h0 = item % parts, heads = a.kv_heads / parts, queries = run.second * a.group();
    s.fit(a, queries, queries * heads);
    RowGroup g(a, s, run.first, run.second, h0);
    for (int c0 = g.begin(); c0 < g.end(); c0 += CHUNK) {
      if (heads > 1) g.touch(c0);
      for (int h = 0; h < heads; h++) {
        g.kv_head = h0 + h;
        g.chunk(c0);
        for (int i = 0; i < queries; i++) fold(s.total[h * queries + i], s.partial[i], a.padded());
      }
    }
    for (int h = 0; h < heads; h++)
      for (int i = 0; i < queries; i++) {
        const int head = (h0 + h) * a.group() + i % a.group();
        Partial& total = s.total[h * queries + i];
        finish(total, a.sinks ? a.sinks + head : nullptr, a.padded());
        emit(g.row0 + i / a.group(), head, total.values);
      }
  });
}

template <class E>
void attend_split(Worker& t, const Attn& a, const RowGroups& cut, AttnScratch& s, SplitStore& store, E emit) {
  const size_t bytes = (size_t)a.padded() * 4;
  const int pairs = (int)cut.runs.size() * cut.chunks, parts = pairs >= 2 * t.team.size ? 1 : a.kv_heads;
  t.each(pairs * parts, 1, [&](int item, bool) {
    const int c = item / parts % cut.chunks;
    const auto run = cut.runs[item / parts / cut.chunks];
    const int h0 = parts == 1 ? 0 : item % parts, h1 = parts == 1 ? a.kv_heads : h0 + 1;
    RowGroup g(a, s, run.first, run.second, h0);
    s.fit(a, g.rows * a.group(), 0);
    if (parts == 1) g.touch(c * CHUNK);
    for (int h = h0; h < h1; h++) {
      g.kv_head = h;
      g.chunk(c * CHUNK);
      for (int i = 0; i < g.rows * a.group(); i++) {
        float* out = store.at(g.row0 + i / a.group(), g.kv_head * a.group() + i % a.group(), c);
        out[0] = s.partial[i].max, out[1] = s.partial[i].sum;
        memcpy(out + LANES, s.partial[i].values, bytes);
      }
    }
  });
  t.each(a.plan->rows * a.heads, 1, [&](int item, bool) {
    const int row = item / a.heads, head = item % a.heads;
    s.fit(a, 0, 1);
    Partial& total = s.total[0];
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
