// launcher PARENT_PID MEMORY_BYTES PROGRAM ARGUMENT...: becomes a program that cannot outlive the process that started it.
//
// The same can be done between fork and exec in Python, but a fork of Python copies its page tables, and its first steps
// copy pages: several milliseconds, for each of thousands of compilations. See llvm/processes.py.

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc < 4)
    return 127;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that: then no signal will ever come.
  if (getppid() != atol(argv[1]))
    return 127;
  const struct rlimit memory = {strtoull(argv[2], NULL, 10), strtoull(argv[2], NULL, 10)};
  const struct rlimit core = {0, 0};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CORE, &core);
  execv(argv[3], argv + 3);
  fprintf(stderr, "error: %s: cannot be started: %s\n", argv[3], strerror(errno));
  return 127;
}
