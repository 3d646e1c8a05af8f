// The rows of a pass as the caller describes them (see RowPlan in plan.py).
#pragma once
#include "simd.h"

struct Plan {
  int32_t rows, requests, max_len, extras;
  const int32_t *positions, *slots, *request, *table, *visible, *visible_block, *extra_ptr, *extra_slots;
  const int32_t* window_positions;  // where a row's window is measured from; null: from its position
};

// What is wrong with a plan, and where; the codes are known to plan.py.
enum PlanError { PLAN_OK = 0, BAD_SLOT, BAD_REQUEST, BAD_VISIBLE, BAD_TABLE, BAD_EXTRA_PTR, BAD_EXTRA_SLOT, BAD_BLOCK, BAD_POSITION, BAD_MAPPED_SLOT, BAD_MAPPED_KEY };

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
// A layer whose pool is smaller than the table's slots (it forgets what left its
// window) has a `map` from those slots to its own; null: they are the same.
struct Keys {
  int lo, hi, tabled;
  const int32_t *table, *extra, *map;
  int slot(int j) const {
    const int s = j < tabled ? table[j] : extra[j - tabled];
    return map ? map[s] : s;
  }
};

inline Keys keys_of(const Plan& p, int r, int window, bool bidirectional, const int32_t* map) {
  Keys k;
  k.map = map;
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

// A plan that passed check_plan, seen through one layer's map: every slot it
// writes and every key in its windows must lie in that layer's pool.
inline PlanFault check_map(const Plan& p, const int32_t* map, int pool_slots, int window, bool bidirectional, bool writes) {
  auto outside = [&](int s) { return s < 0 || s >= pool_slots; };
  int request = -1, done = 0;
  for (int r = 0; r < p.rows; r++) {
    if (writes && p.slots[r] != -1 && outside(map[p.slots[r]])) return {BAD_MAPPED_SLOT, r};
    const Keys k = keys_of(p, r, window, bidirectional, map);
    if (p.request[r] != request) request = p.request[r], done = 0;
    for (int j = std::max(k.lo, std::min(done, k.tabled)); j < k.hi; j++)
      if (outside(k.slot(j))) return {BAD_MAPPED_KEY, j};
    done = std::max(done, std::min(k.hi, k.tabled));
  }
  return {PLAN_OK, 0};
}
