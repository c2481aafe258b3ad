// A source to try out the inliner plugin on, which is rejected unless it computes the same features here as LLVM's own
// advisor (see llvm/inliner_plugin.py).
//
// The code makes features hard to keep up to date. Inlining its calls ends blocks, splits or removes landing pads,
// makes calls direct, and deletes functions; there are single-block loops, mutual recursion, and coroutines that are
// split in the meantime. It includes no headers, so that it compiles for any target.

void put(int);
int get(int);

struct Guard {
  int n;
  ~Guard() { put(n); }
};

static void stop(int x) {
  put(x);
  __builtin_trap();
}
static int checked(int x) {
  if (x < 0)
    stop(x);
  return get(x);
}
static void raise(int x) {
  if (x > 7)
    throw x;
  put(x + 1);
}
static void quiet(int x) { put(x); }

int guarded(int x) {
  Guard outer{x};
  try {
    Guard inner{x + 1};
    raise(x);
    quiet(checked(x));
    raise(x + 2);
  } catch (int caught) {
    raise(caught);
    return checked(caught);
  }
  return checked(x + 1);
}

// After inlining, there is nothing left to catch or to destroy.
static int harmless(int x) noexcept { return x * 3; }
static void ends(int x) {
  Guard guard{x};
  stop(x);
}
int lost(int x) {
  try {
    Guard guard{harmless(x)};
    if (x > 3)
      ends(x);
    raise(harmless(x));
  } catch (...) {
    return checked(x);
  }
  return harmless(x);
}

// The uses of a result that is never returned become unreachable; LLVM 22 counts their blocks nevertheless.
static int hang(int x) {
  put(x);
  stop(x);
  return x;
}
static int waits(int x) {
  int never = hang(x);
  if (x > 3)
    put(checked(never));
  else
    put(harmless(never));
  return checked(x) + never;
}
int waited(int x) { return waits(x) + harmless(x) + checked(x + 1); }

typedef int (*Function)(int);
static int leaf(int x) { return get(x) * 3; }
static Function choose(int) { return leaf; }
int indirect(int x) {
  Function f = choose(x);
  if (x > 4)
    put(x);
  return f(x) + f(x + 1);
}

static int odd(int n);
static int even(int n) { return n == 0 ? 1 : odd(n - 1); }
static int odd(int n) { return n == 0 ? 0 : even(n - 1); }
int parity(int n) { return even(n) + odd(n + 1); }

static int kind(int x) {
  switch (x) {
  case 1:
    return get(1);
  case 2:
    return leaf(2);
  case 7:
    stop(x);
  case 9:
    return get(4);
  }
  return x;
}
int loops(int n) {
  int total = 0;
  for (int i = 0; i < n; i++)
    total += leaf(i);
  do {
    total += kind(total);
  } while (checked(total) > 3);
  return kind(3) + total;
}

__attribute__((always_inline)) static inline int must(int x) { return kind(x) + parity(x); }
__attribute__((noinline)) int never(int x) { return must(x) + loops(x); }
template <int N> int chain(int x) { return chain<N - 1>(x) + chain<N - 1>(checked(x)); }
template <> int chain<0>(int x) { return never(x) + must(x); }
int all(int x) { return chain<5>(x) + guarded(x) + lost(x) + indirect(x) + waited(x); }

namespace std {
template <class Result, class...> struct coroutine_traits {
  using promise_type = typename Result::promise_type;
};
template <class Promise = void> struct coroutine_handle {
  static coroutine_handle from_address(void *frame) noexcept { return {frame}; }
  static coroutine_handle from_promise(Promise &promise) {
    return {__builtin_coro_promise(&promise, alignof(Promise), true)};
  }
  Promise &promise() const { return *static_cast<Promise *>(__builtin_coro_promise(frame, alignof(Promise), false)); }
  bool done() const { return __builtin_coro_done(frame); }
  void resume() const { __builtin_coro_resume(frame); }
  void destroy() const { __builtin_coro_destroy(frame); }
  void *frame;
};
} // namespace std

struct Generator {
  struct promise_type {
    struct Suspend {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> handle) const noexcept { put(handle.promise().value); }
      void await_resume() const noexcept {}
    };
    Generator get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    Suspend initial_suspend() { return {}; }
    Suspend final_suspend() noexcept { return {}; }
    Suspend yield_value(int yielded) {
      value = checked(yielded);
      return {};
    }
    void return_void() {}
    void unhandled_exception() { raise(9); }
    int value = 0;
  };
  bool next() {
    handle.resume();
    return !handle.done();
  }
  ~Generator() { handle.destroy(); }
  std::coroutine_handle<promise_type> handle;
};

static Generator count(int from, int to) {
  Guard guard{from};
  for (int i = from; i < to; i++)
    co_yield kind(i);
  co_yield checked(to);
}
int counted(int n) {
  int total = 0;
  for (Generator numbers = count(1, n); numbers.next();)
    total += leaf(numbers.handle.promise().value);
  return total + loops(n);
}
int summed(int n) { return counted(n) + counted(n + 1); }
