// Threads.  A pass is ONE parallel region: torch's own OpenMP pool when its
// entry points were handed over (a second pool of spinning threads would fight
// the first for the cores), otherwise a small pool of our own.  Inside the
// region the phases are separated by a light barrier.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__linux__) || defined(__APPLE__)
#include <sched.h>
#endif
#include "simd.h"

DP_INLINE void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int MAX_THREADS = 256;
// After this many polls a waiter yields: if the missing thread has lost its
// core, the kernel can run it here.
constexpr int SPIN_POLLS = 4000;

struct alignas(128) Counter { std::atomic<int> v{0}; };

struct Team {
  int size = 1;
  Counter arrived, generation;
  Counter next[2][MAX_THREADS];

  void reset(int n) {
    size = n;
    arrived.v = generation.v = 0;
    for (int i = 0; i < n; i++) next[0][i].v = next[1][i].v = 0;
  }
};

// One thread's view of the region.
struct Worker {
  Team& team;
  const int id;
  int phase = 0;

  void barrier() {
    if (team.size == 1) return;
    const int gen = team.generation.v.load(std::memory_order_relaxed);
    if (team.arrived.v.fetch_add(1, std::memory_order_acq_rel) == team.size - 1) {
      team.arrived.v.store(0, std::memory_order_relaxed);
      team.generation.v.store(gen + 1, std::memory_order_release);
      return;
    }
    for (int polls = 0; team.generation.v.load(std::memory_order_acquire) == gen; polls++) {
      if (polls < SPIN_POLLS) cpu_pause();
      else sched_yield();
    }
  }

  // Runs f(item, last) for every item 0..n-1, then a barrier.  Each thread owns
  // a contiguous range (good for streaming) and helps its neighbours when done;
  // `last` tells that the next item is not in the thread's own range.
  template <class F> void each(int n, int grain, F f) {
    Counter* now = team.next[phase & 1];
    // Nobody touches the other set during this phase.
    team.next[(phase + 1) & 1][id].v.store(0, std::memory_order_relaxed);
    phase++;
    const int helped = std::min(team.size, 8);
    for (int d = 0; d < helped; d++) {
      const int owner = (id + d) % team.size;
      const int lo = (int)((int64_t)n * owner / team.size), hi = (int)((int64_t)n * (owner + 1) / team.size);
      if (d && now[owner].v.load(std::memory_order_relaxed) >= hi - lo) continue;
      for (;;) {
        const int i = lo + now[owner].v.fetch_add(grain, std::memory_order_relaxed);
        if (i >= hi) break;
        const int end = std::min(hi, i + grain);
        for (int j = i; j < end; j++) f(j, d != 0 || j + 1 >= hi);
      }
    }
    barrier();
  }
};

// Fallback pool: threads poll briefly for the next job, then sleep.
class OwnPool {
 public:
  void run(int n, const std::function<void(int, int)>& job) {
    while ((int)threads_.size() < n - 1) {
      const int id = (int)threads_.size() + 1;
      threads_.emplace_back([this, id, seen = epoch_.load()] { loop(id, seen); });
      threads_.back().detach();
    }
    job_ = &job;
    active_ = n;
    // Every thread reports back, also those with nothing to do: none can be
    // late and meet the next job under this one's number.
    pending_.store((int)threads_.size());
    { std::lock_guard<std::mutex> g(m_); epoch_.fetch_add(1); }
    cv_.notify_all();
    job(0, n);
    for (int polls = 0; pending_.load(std::memory_order_acquire); polls++) {
      if (polls < SPIN_POLLS) cpu_pause();
      else sched_yield();
    }
  }

 private:
  void loop(int id, int seen) {
    for (;;) {
      for (int polls = 0; polls < 2000 && epoch_.load(std::memory_order_acquire) == seen; polls++) cpu_pause();
      if (epoch_.load() == seen) {
        std::unique_lock<std::mutex> g(m_);
        cv_.wait(g, [&] { return epoch_.load() != seen; });
      }
      seen = epoch_.load();
      if (id < active_) (*job_)(id, active_);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }
  std::vector<std::thread> threads_;
  std::mutex m_;
  std::condition_variable cv_;
  std::atomic<int> epoch_{0}, pending_{0};
  const std::function<void(int, int)>* job_ = nullptr;
  int active_ = 0;
};

struct Runtime {
  void (*gomp_parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*thread_num)() = nullptr;
  int (*num_threads)() = nullptr;
  int threads = 1;
  std::mutex pass;  // one pass at a time: scratch memory is reused
  Team team;
  OwnPool* own = nullptr;  // never freed: its threads outlive static destructors
};
inline Runtime& runtime() {
  static Runtime* r = new Runtime;
  return *r;
}

template <class F> struct Region {
  Team* team;
  int asked;
  F* body;
  static void entry(void* p) {
    Region* r = (Region*)p;
    Runtime& rt = runtime();
    // The runtime may grant fewer threads than asked for (nesting, limits).
    const int id = rt.thread_num(), n = rt.num_threads();
    r->run(id, n);
  }
  void run(int id, int n) {
    if (n != asked) {
      if (id == 0) fallback();
      return;
    }
    Worker w{*team, id};
    (*body)(w);
  }
  void fallback() {
    team->reset(1);
    Worker w{*team, 0};
    (*body)(w);
  }
};

// Calls body(Worker&) once on every thread of the team.
template <class F> void parallel(F body) {
  Runtime& rt = runtime();
  std::lock_guard<std::mutex> guard(rt.pass);
  const int n = std::min(rt.threads, MAX_THREADS);
  rt.team.reset(n);
  Region<F> region{&rt.team, n, &body};
  if (n == 1) {
    region.fallback();
  } else if (rt.gomp_parallel) {
    rt.gomp_parallel(&Region<F>::entry, &region, (unsigned)n, 0);
  } else {
    if (!rt.own) rt.own = new OwnPool;
    rt.own->run(n, [&](int id, int count) { region.run(id, count); });
  }
}
