// The rows of a pass as the caller describes them (see RowPlan in plan.py).
#pragma once
#include "simd.h"

struct Plan {
  int32_t rows, requests, max_len, extras;
  const int32_t *positions, *slots, *request, *table, *visible, *visible_block, *extra_ptr, *extra_slots;
  const int32_t* window_positions;  // where a row's window is measured from; null: from its position
};

// What is wrong with a plan, and where; the codes are known to plan.py.
enum PlanError { PLAN_OK = 0, BAD_SLOT, BAD_REQUEST, BAD_VISIBLE, BAD_TABLE, BAD_EXTRA_PTR, BAD_EXTRA_SLOT, BAD_BLOCK, BAD_POSITION };

struct PlanFault { int32_t code, where; };

inline PlanFault check_plan(const Plan& p, int num_slots, bool writes) {
  auto outside = [&](int s) { return s < 0 || s >= num_slots; };
  for (int r = 0; r < p.rows; r++) {
    if (writes && p.slots[r] != -1 && outside(p.slots[r])) return {BAD_SLOT, r};
    if (p.positions[r] < 0) return {BAD_POSITION, r};
    if (p.request[r] < 0 || p.request[r] >= p.requests) return {BAD_REQUEST, r};
    if (p.visible[r] < 0 || p.visible[r] > p.max_len) return {BAD_VISIBLE, r};
    if (p.visible_block && (p.visible_block[r] < 0 || p.visible_block[r] > p.max_len)) return {BAD_BLOCK, r};
  }
  if (p.extra_ptr) {
    if (p.extra_ptr[0] != 0) return {BAD_EXTRA_PTR, 0};
    for (int r = 0; r < p.rows; r++)
      if (p.extra_ptr[r + 1] < p.extra_ptr[r] || p.extra_ptr[r + 1] > p.extras) return {BAD_EXTRA_PTR, r + 1};
    for (int e = 0; e < p.extras; e++)
      if (outside(p.extra_slots[e])) return {BAD_EXTRA_SLOT, e};
  }
  // Rows of one request usually share a prefix: check each stretch once.
  int done_request = -1, done = 0;
  for (int r = 0; r < p.rows; r++) {
    if (p.request[r] != done_request) done_request = p.request[r], done = 0;
    const int n = p.visible_block && p.visible_block[r] > p.visible[r] ? p.visible_block[r] : p.visible[r];
    const int32_t* row = p.table + (size_t)done_request * p.max_len;
    for (; done < n; done++)
      if (outside(row[done])) return {BAD_TABLE, done};
  }
  return {PLAN_OK, 0};
}

// The keys of one row for one layer: logical positions lo..hi-1, of which the
// first `tabled` come from the request's table and the others from `extra`.
struct Keys {
  int lo, hi, tabled;
  const int32_t *table, *extra;
  int slot(int j) const { return j < tabled ? table[j] : extra[j - tabled]; }
};

inline Keys keys_of(const Plan& p, int r, int window, bool bidirectional) {
  Keys k;
  k.tabled = bidirectional && p.visible_block ? p.visible_block[r] : p.visible[r];
  k.table = p.table + (size_t)p.request[r] * p.max_len;
  k.extra = p.extra_ptr ? p.extra_slots + p.extra_ptr[r] : nullptr;
  k.hi = k.tabled + (p.extra_ptr ? p.extra_ptr[r + 1] - p.extra_ptr[r] : 0);
  k.lo = 0;
  if (window > 0) {
    const int pos = (p.window_positions ? p.window_positions : p.positions)[r];
    if (pos - window + 1 > 0) k.lo = pos - window + 1;
    if (bidirectional && pos + window < k.hi) k.hi = pos + window;
  }
  if (k.lo > k.hi) k.lo = k.hi;
  return k;
}
