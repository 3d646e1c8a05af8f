// The largest value of a row of logits, where it is, and the log of the sum of exponentials.
#pragma once
#include "simd.h"

struct RowStats {
  float largest;  // NaN if the row holds one
  int32_t at;     // the first of equals
  float lse;      // log(sum(exp(row))), if asked for
};

constexpr int STRETCH = 64 * LANES;  // floats; only the one with the largest is looked through for its place

inline RowStats row_stats(const float* x, int n, bool with_lse) {
  const int whole = n / LANES * LANES;
  VS nan = {};
  RowStats out = {-INFINITY, 0, 0.f};
  for (int from = 0; from < whole; from += STRETCH) {
    const int to = std::min(from + STRETCH, whole);
    vf top = set1(-INFINITY);
    for (int j = from; j < to; j += LANES) {
      const vf v = ld(x + j);
      DP_EACH nan |= (VS)(v.a[i] != v.a[i]);
      top = vmax(top, v);
    }
    const float largest = hmax(top);
    if (largest > out.largest) out.largest = largest, out.at = from;
  }
  bool broken = false;
  for (int i = 0; i < PL; i++) broken |= nan[i] != 0;
  for (int j = whole; j < n; j++) {
    broken |= x[j] != x[j];
    if (x[j] > out.largest) out.largest = x[j], out.at = j;
  }
  if (broken) {
    out.largest = NAN, out.at = 0;
    return out;
  }
  while (out.at < n && x[out.at] != out.largest) out.at++;
  if (!with_lse || std::isinf(out.largest)) {
    out.lse = out.largest;
    return out;
  }
  vf sum = zero();
  for (int j = 0; j < whole; j += LANES) sum = sum + vexp(ld(x + j) - set1(out.largest));
  float total = hsum(sum);
  for (int j = whole; j < n; j++) total += exp1(x[j] - out.largest);
  out.lse = out.largest + std::log(total);
  return out;
}
