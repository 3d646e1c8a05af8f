// One pass: rows through all layers, or context rows into the K/V pools.
#pragma once
#include "decoder.h"

struct Pass {
  Decoder& m;
  const Plan& plan;
  void* const* kv;  // k0, v0, k1, v1, ...
  const int32_t* const* maps;  // per layer, see Keys
  const DecoderSpec& d;
  Scratch& s;
  const Blocks blocks;
  const bool bf16;

  Pass(Decoder& dec, const Plan& p, void* const* pools, const int32_t* const* slot_maps) : m(dec), plan(p), kv(pools), maps(slot_maps), d(dec.d), s(dec.scratch), blocks(p.rows), bf16(dec.d.bf16) {
    const size_t rows = plan.rows;
    fit(s.residual, rows * d.hidden);
    fit(s.qkv, rows * m.qkv_width());
    fit(s.cosine, rows * d.rope_half);
    fit(s.sine, rows * d.rope_half);
    fit(s.x, rows * words(d.hidden));
    fit(s.attn, rows * words(m.q_dim()));
    fit(s.ffn, rows * ffn_words());
    fit(s.q, rows * words(m.q_dim()));
    // Empty until a thread uses its own: the thread count may change any time.
    fit(s.row, MAX_THREADS);
    fit(s.attention, MAX_THREADS);
  }
  std::vector<float>& own_row(int thread) {
    fit(s.row[thread], (size_t)std::max(d.hidden, d.head_dim) + LANES);
    return s.row[thread];
  }
  int words(int k) const { return steps_of(k, bf16) * (bf16 ? B16::XW : F32::XW); }
  int ffn_words() const { return words(d.inter); }

  void rope_tables(int r) {
    const float pos = (float)plan.positions[r];
    for (int i = 0; i < d.rope_half; i++) {
      const float angle = pos * m.inv_freq[i];
      s.cosine[(size_t)r * d.rope_half + i] = cosf(angle) * d.rope_scaling;
      s.sine[(size_t)r * d.rope_half + i] = sinf(angle) * d.rope_scaling;
    }
  }

  void rotate(float* v, int r) const {
    const float *c = s.cosine.data() + (size_t)r * d.rope_half, *n = s.sine.data() + (size_t)r * d.rope_half;
    const int half = d.rope_half;
    for (int i = 0; i < half; i++) {
      const float a = v[i], b = v[i + half];
      v[i] = a * c[i] - b * n[i];
      v[i + half] = b * c[i] + a * n[i];
    }
  }

  // Norm and rotation of one head, in the thread's own buffer.
  float* turn(const float* head, const std::vector<float>& norm, int r, std::vector<float>& own) const {
    float* v = own.data();
    if (norm.empty()) memcpy(v, head, (size_t)d.head_dim * 4);
    else rms_norm(head, norm.data(), v, d.head_dim, d.eps);
    rotate(v, r);
    return v;
  }

  void store(void* pool, int slot, int head, const float* v) const {
    const size_t at = ((size_t)slot * d.kv_heads + head) * d.head_dim;
    if (!bf16) {
      memcpy((float*)pool + at, v, (size_t)d.head_dim * 4);
      return;
    }
    u16* out = (u16*)pool + at;
    for (int i = 0; i < d.head_dim; i++) out[i] = f_to_bf(v[i]);
  }

  // Item h of a row: query heads first, then key heads, then value heads.
  void place_head(int l, int r, int h, std::vector<float>& own) {
    const Layer& layer = m.layers[l];
    const float* row = s.qkv.data() + (size_t)r * m.qkv_width();
    if (h < d.heads) {
      const float* v = turn(row + h * d.head_dim, layer.q_norm, r, own);
      RowWriter w(s.q.data() + (size_t)r * words(m.q_dim()) + (size_t)h * words(d.head_dim), 0, 1, 0, 0, bf16);
      w.put(0, v, d.head_dim);
      return;
    }
    h -= d.heads;
    if (plan.slots[r] < 0) return;
    const int slot = maps[l] ? maps[l][plan.slots[r]] : plan.slots[r];
    if (h < d.kv_heads) {
      store(kv[2 * l], slot, h, turn(row + m.k_at() + h * d.head_dim, layer.k_norm, r, own));
    } else {
      h -= d.kv_heads;
      store(kv[2 * l + 1], slot, h, row + m.v_at() + h * d.head_dim);
    }
  }

  void norm_row(int r, const std::vector<float>& weight, std::vector<float>& own) {
    rms_norm(s.residual.data() + (size_t)r * d.hidden, weight.data(), own.data(), d.hidden, d.eps);
    RowWriter::of(s.x.data(), blocks, r, words(d.hidden), bf16).put(0, own.data(), d.hidden);
  }

  // gemm epilogues
  void keep_qkv(int r0, int n, int p, const float* tile) {
    for (int i = 0; i < n; i++)
      memcpy(s.qkv.data() + (size_t)(r0 + i) * m.qkv_width() + (size_t)p * NR, tile + i * NR, NR * 4);
  }
  void add_residual(int r0, int n, int p, const float* tile) {
    const int cols = std::min(NR, d.hidden - p * NR);
    for (int i = 0; i < n; i++) {
      float* out = s.residual.data() + (size_t)(r0 + i) * d.hidden + (size_t)p * NR;
      for (int c = 0; c < cols; c++) out[c] = out[c] + tile[i * NR + c];
    }
  }
  void keep_ffn(int r0, int n, int p, const float* tile) {
    const int cols = std::min(LANES, d.inter - p * LANES);
    for (int i = 0; i < n; i++) {
      float y[LANES];
      st(y, silu(ld(tile + i * NR)) * ld(tile + i * NR + LANES));
      RowWriter(s.ffn.data(), r0, n, i, ffn_words(), bf16).put(p * LANES, y, cols);
    }
  }

  void layer(Worker& t, int l, const RowGroups& cut) {
    const Layer& w = m.layers[l];
    const Packed* after = l + 1 < (int)m.layers.size() ? &m.layers[l + 1].qkv : nullptr;
    std::vector<float>& own = own_row(t.id);
    const int rows = plan.rows;
    t.each(rows, 1, [&](int r, bool) { norm_row(r, w.input_norm, own); });
    gemm(t, w.qkv, 0, w.qkv.panels, s.x.data(), rows, &w.o, [&](int r0, int n, int p, const float* y) { keep_qkv(r0, n, p, y); });
    const int heads = d.heads + 2 * d.kv_heads;
    t.each(rows * heads, 4, [&](int i, bool) { place_head(l, i / heads, i % heads, own); });
    Attn a{&plan, d.heads, d.kv_heads, d.head_dim, bf16, d.attn_scale, 0.f, w.window, w.bidirectional, nullptr, kv[2 * l], kv[2 * l + 1], s.q.data(), maps[l]};
    attend(t, a, cut, s.attention[t.id], s.split, [&](int r, int h, const float* v) {
      RowWriter::of(s.attn.data(), blocks, r, words(m.q_dim()), bf16).put(h * d.head_dim, v, d.head_dim);
    });
    gemm(t, w.o, 0, w.o.panels, s.attn.data(), rows, &w.gate_up, [&](int r0, int n, int p, const float* y) { add_residual(r0, n, p, y); });
    t.each(rows, 1, [&](int r, bool) { norm_row(r, w.post_norm, own); });
    gemm(t, w.gate_up, 0, w.gate_up.panels, s.x.data(), rows, &w.down, [&](int r0, int n, int p, const float* y) { keep_ffn(r0, n, p, y); });
    gemm(t, w.down, 0, w.down.panels, s.ffn.data(), rows, after, [&](int r0, int n, int p, const float* y) { add_residual(r0, n, p, y); });
  }

  // tap_out[row][j] = the state named by taps[j]; `state` is 0 for the
  // embeddings, l + 1 after layer l.
  void copy_taps(int state, int r, const float* from, const int32_t* taps, int n, float* tap_out) const {
    for (int j = 0; j < n; j++)
      if (taps[j] == state) memcpy(tap_out + ((size_t)r * n + j) * d.hidden, from, (size_t)d.hidden * 4);
  }

  void forward(const float* x, const int32_t* taps, int n_taps, float* out, float* tap_out) {
    const int count = (int)m.layers.size(), rows = plan.rows;
    const RowGroups cut(plan, d.heads, d.kv_heads, runtime().threads);
    if (cut.chunks > 1) s.split.fit(rows, d.heads, cut.chunks, (d.head_dim + LANES - 1) / LANES * LANES);
    parallel([&](Worker& t) {
      t.each(rows, 1, [&](int r, bool) {
        memcpy(s.residual.data() + (size_t)r * d.hidden, x + (size_t)r * d.hidden, (size_t)d.hidden * 4);
        rope_tables(r);
      });
      for (int l = 0; l < count; l++) {
        if (wanted(l, taps, n_taps))
          t.each(rows, 1, [&](int r, bool) { copy_taps(l, r, s.residual.data() + (size_t)r * d.hidden, taps, n_taps, tap_out); });
        layer(t, l, cut);
      }
      t.each(rows, 1, [&](int r, bool) {
        const float* from = s.residual.data() + (size_t)r * d.hidden;
        float* to = out + (size_t)r * d.hidden;
        if (m.final_norm.empty()) memcpy(to, from, (size_t)d.hidden * 4);
        else rms_norm(from, m.final_norm.data(), to, d.hidden, d.eps);
        copy_taps(count, r, to, taps, n_taps, tap_out);
      });
    });
  }
  static bool wanted(int state, const int32_t* taps, int n) { return std::find(taps, taps + n, state) != taps + n; }

  void append(const float* x) {
    const int rows = plan.rows, keys = m.k_at() / NR;
    parallel([&](Worker& t) {
      std::vector<float>& own = own_row(t.id);
      t.each(rows, 1, [&](int r, bool) {
        RowWriter::of(s.x.data(), blocks, r, words(d.hidden), bf16).put(0, x + (size_t)r * d.hidden, d.hidden);
        rope_tables(r);
      });
      for (int l = 0; l < (int)m.layers.size(); l++) {
        const Packed& w = m.layers[l].qkv;
        gemm(t, w, keys, w.panels - keys, s.x.data(), rows, nullptr, [&](int r0, int n, int p, const float* y) { keep_qkv(r0, n, p, y); });
        t.each(rows * 2 * d.kv_heads, 4, [&](int i, bool) {
          place_head(l, i / (2 * d.kv_heads), d.heads + i % (2 * d.kv_heads), own);
        });
      }
    });
  }
};
