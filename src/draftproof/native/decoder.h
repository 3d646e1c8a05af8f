// A stack of decoder layers evaluated in one parallel region per pass.
#pragma once
#include "attention_pass.h"

struct LayerSpec {  // mirrors decoder.py
  const void *q, *k, *v, *o, *gate, *up, *down;
  const float *input_norm, *post_norm, *q_bias, *k_bias, *v_bias, *o_bias, *q_norm, *k_norm;
  int32_t window, bidirectional;
};
struct DecoderSpec {
  int32_t layers, hidden, heads, kv_heads, head_dim, inter, bf16, rope_half;
  float eps, rope_scaling, attn_scale;
  const float *inv_freq, *final_norm;
};

// y = x / rms(x) * weight; the sum runs over 16 lanes in one fixed order.
inline void rms_norm(const float* x, const float* weight, float* y, int n, float eps) {
  vf acc = zero();
  int i = 0;
  for (; i + LANES <= n; i += LANES) acc = fma(ld(x + i), ld(x + i), acc);
  if (i < n) {
    const vf tail = ld_n(x + i, n - i);
    acc = fma(tail, tail, acc);
  }
  const vf inv = set1(1.f / sqrtf(hsum(acc) / (float)n + eps));
  for (i = 0; i + LANES <= n; i += LANES) st(y + i, ld(x + i) * inv * ld(weight + i));
  if (i < n) st_n(y + i, ld_n(x + i, n - i) * inv * ld_n(weight + i, n - i), n - i);
}

struct Layer {
  Packed qkv, o, gate_up, down;
  std::vector<float> input_norm, post_norm, q_norm, k_norm;
  int window = 0;
  bool bidirectional = false;
};

struct Scratch {
  std::vector<float> residual, qkv, cosine, sine;
  std::vector<u32> x, attn, ffn, q;
  std::vector<std::vector<float>> row;  // per thread
  std::vector<AttnScratch> attention;   // per thread
  SplitStore split;
};
template <class T> inline void fit(std::vector<T>& v, size_t n) {
  if (v.size() < n) v.resize(n);
}

class Decoder {
 public:
  DecoderSpec d;
  std::vector<Layer> layers;
  std::vector<float> inv_freq, final_norm;

  explicit Decoder(const DecoderSpec& spec) : d(spec), inv_freq(spec.inv_freq, spec.inv_freq + spec.rope_half) {
    if (spec.final_norm) final_norm.assign(spec.final_norm, spec.final_norm + d.hidden);
    const int out_panels = panels_of(d.hidden);
    const size_t per = packed_bytes(qkv_width() / NR, d.hidden, d.bf16) + packed_bytes(out_panels, q_dim(), d.bf16) +
                       packed_bytes(2 * ffn_width() / NR, d.hidden, d.bf16) + packed_bytes(out_panels, d.inter, d.bf16);
    arena_.expect(per * (size_t)std::max(1, d.layers));
  }

  int q_dim() const { return d.heads * d.head_dim; }
  int kv_dim() const { return d.kv_heads * d.head_dim; }
  int k_at() const { return panels_of(q_dim()) * NR; }
  int v_at() const { return k_at() + panels_of(kv_dim()) * NR; }
  int qkv_width() const { return v_at() + panels_of(kv_dim()) * NR; }
  int ffn_width() const { return (d.inter + LANES - 1) / LANES * LANES; }

  void add_layer(const LayerSpec& s) {
    Layer l;
    l.window = s.window, l.bidirectional = s.bidirectional;
    l.input_norm.assign(s.input_norm, s.input_norm + d.hidden);
    l.post_norm.assign(s.post_norm, s.post_norm + d.hidden);
    if (s.q_norm) l.q_norm.assign(s.q_norm, s.q_norm + d.head_dim);
    if (s.k_norm) l.k_norm.assign(s.k_norm, s.k_norm + d.head_dim);
    std::vector<const void*> c(qkv_width(), nullptr);
    place(c, 0, s.q, q_dim(), d.hidden);
    place(c, k_at(), s.k, kv_dim(), d.hidden);
    place(c, v_at(), s.v, kv_dim(), d.hidden);
    l.qkv = pack(arena_, c, d.hidden, d.bf16);
    if (s.q_bias || s.k_bias || s.v_bias) {
      l.qkv.bias = (float*)arena_.get((size_t)qkv_width() * 4);
      if (s.q_bias) memcpy(l.qkv.bias, s.q_bias, (size_t)q_dim() * 4);
      if (s.k_bias) memcpy(l.qkv.bias + k_at(), s.k_bias, (size_t)kv_dim() * 4);
      if (s.v_bias) memcpy(l.qkv.bias + v_at(), s.v_bias, (size_t)kv_dim() * 4);
    }
    c.assign((size_t)panels_of(d.hidden) * NR, nullptr);
    place(c, 0, s.o, d.hidden, q_dim());
    l.o = pack(arena_, c, q_dim(), d.bf16);
    if (s.o_bias) {
      l.o.bias = (float*)arena_.get((size_t)l.o.panels * NR * 4);
      memcpy(l.o.bias, s.o_bias, (size_t)d.hidden * 4);
    }
    pack_ffn(l, s);
    layers.push_back(std::move(l));
  }

  Scratch scratch;
  std::mutex use;  // the scratch serves one pass at a time

 private:
  Arena arena_;

  size_t size() const { return d.bf16 ? 2 : 4; }
  void place(std::vector<const void*>& c, size_t at, const void* w, int n, int k) const {
    for (int i = 0; i < n; i++) c[at + i] = (const char*)w + (size_t)i * k * size();
  }
  // A panel holds 16 gate and the 16 matching up columns, so that the product
  // silu(gate) * up is formed where the tile is.
  void pack_ffn(Layer& l, const LayerSpec& s) {
    std::vector<const void*> c((size_t)2 * ffn_width(), nullptr);
    for (int i = 0; i < d.inter; i++) {
      const size_t at = (size_t)(i / LANES) * NR + i % LANES;
      c[at] = (const char*)s.gate + (size_t)i * d.hidden * size();
      c[at + LANES] = (const char*)s.up + (size_t)i * d.hidden * size();
    }
    l.gate_up = pack(arena_, c, d.hidden, d.bf16);
    c.assign((size_t)panels_of(d.hidden) * NR, nullptr);
    place(c, 0, s.down, d.hidden, d.inter);
    l.down = pack(arena_, c, d.inter, d.bf16);
  }
};
