// A library that turns a program into a fork server: load it with LD_PRELOAD, and pass one end of a stream socket.
//
// Starting the compiler is most of the cost of a small compilation: before main, its libraries are mapped and
// relocated, and thousands of options are registered. A fork server does this only once. It waits for requests just
// before main, and serves each one by forking a child that runs main with the request's arguments, as if it had just
// been started. The client is llvm/fork_server.py.
//
//   MLGO_FORK_SERVER           the socket's descriptor; without it, the program runs normally
//   MLGO_FORK_SERVER_SANDBOX   if set, children cannot leave their sessions, as elsewhere in the sandbox
//
// The children's parent is the client, which started the server (CLONE_PARENT), so that it can wait for them and kill
// them.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

typedef int Main(int, char **, char **);

// Followed by `num_bytes` of NUL-terminated strings: the working directory, the arguments, the environment. Two
// descriptors are sent with it: standard output and standard error. Numbers are in native byte order.
struct Request {
  uint64_t memory_bytes; // limit on the address space
  uint64_t file_bytes;   // limit on each file that is written
  uint32_t num_arguments;
  uint32_t num_variables;
  uint32_t num_bytes;
};

// Sent by the child before it runs main, or by the server if it cannot fork.
struct Reply {
  int32_t pid;
  int32_t error; // 0, or the errno of a failure, after which the child exits
};

enum { kMaxStrings = 1 << 20, kMaxBytes = 1 << 26 };

static Main *program_main;
static int client = -1; // the socket
static int in_sandbox;

static int receive(void *buffer, size_t size) {
  for (char *next = buffer; size != 0;) {
    const ssize_t received = recv(client, next, size, 0);
    if (received < 0 && errno == EINTR)
      continue;
    if (received <= 0)
      return 0;
    next += received;
    size -= (size_t)received;
  }
  return 1;
}

// Receives a request and its descriptors; 0 if the client is gone or the request is malformed.
static int receive_request(struct Request *request, int descriptors[2]) {
  union {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr aligned;
  } control;
  struct iovec part = {request, sizeof *request};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t received;
  do
    received = recvmsg(client, &message, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (received <= 0 || header == NULL || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
    return 0;
  memcpy(descriptors, CMSG_DATA(header), 2 * sizeof(int));
  return receive((char *)request + received, sizeof *request - (size_t)received) &&
         request->num_arguments <= kMaxStrings && request->num_variables <= kMaxStrings && request->num_bytes != 0 &&
         request->num_bytes <= kMaxBytes;
}

// Fills a NULL-terminated array with pointers to the next `count` strings. Returns the address after these strings, or
// NULL if there are fewer.
static char *fill_pointers(char **to, uint32_t count, char *next, const char *end) {
  for (; count != 0; --count) {
    if (next == end)
      return NULL;
    *to++ = next;
    next += strlen(next) + 1;
  }
  *to = NULL;
  return next;
}

// Refuses setsid and setpgid from now on, by a filter in addition to the sandbox's: the client kills the child with all
// that it has started by its process group. Returns 0, or -1 with errno.
static int stay_in_session(void) {
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsid, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpgid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof instructions / sizeof *instructions, instructions};
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

// Sets up a new child as its request says; returns 0 or an errno.
static int set_up_child(const struct Request *request, const int descriptors[2], const char *directory, pid_t parent) {
  const struct rlimit memory = {request->memory_bytes, request->memory_bytes};
  const struct rlimit file = {request->file_bytes, request->file_bytes};
  const struct rlimit core = {0, 0};
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setsid() < 0 || dup2(descriptors[0], 1) < 0 ||
      dup2(descriptors[1], 2) < 0 || chdir(directory) != 0 || setrlimit(RLIMIT_CORE, &core) != 0 ||
      setrlimit(RLIMIT_FSIZE, &file) != 0 || setrlimit(RLIMIT_AS, &memory) != 0 ||
      (in_sandbox && stay_in_session() != 0))
    return errno;
  // If the client died before prctl, no signal will ever arrive.
  return getppid() == parent ? 0 : ESRCH;
}

static int serve(int argc, char **argv, char **envp) {
  if (client < 0)
    return program_main(argc, argv, envp);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const pid_t parent = getppid();
  for (;;) {
    struct Request request;
    int descriptors[2];
    if (!receive_request(&request, descriptors))
      _exit(0);
    char *strings = malloc(request.num_bytes);
    char **pointers = malloc(((size_t)request.num_arguments + request.num_variables + 2) * sizeof *pointers);
    if (strings == NULL || pointers == NULL || !receive(strings, request.num_bytes) ||
        strings[request.num_bytes - 1] != '\0')
      _exit(1);
    char **const variables = pointers + request.num_arguments + 1;
    const char *end = strings + request.num_bytes;
    char *next = fill_pointers(pointers, request.num_arguments, strings + strlen(strings) + 1, end);
    if (next == NULL || fill_pointers(variables, request.num_variables, next, end) != end)
      _exit(1);

    // A raw system call: what fork() of the C library does in addition is only needed with several threads.
    const long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (pid <= 0) {
      struct Reply reply = {(int32_t)getpid(), pid == 0 ? set_up_child(&request, descriptors, strings, parent) : errno};
      if (pid < 0)
        reply.pid = 0;
      const int is_sent = send(client, &reply, sizeof reply, MSG_NOSIGNAL) == (ssize_t)sizeof reply;
      if (pid == 0) {
        if (!is_sent || reply.error != 0)
          _exit(127);
        close(client);
        close(descriptors[0]);
        close(descriptors[1]);
        environ = variables;
        return program_main((int)request.num_arguments, pointers, variables);
      }
    }
    close(descriptors[0]);
    close(descriptors[1]);
    free(pointers);
    free(strings);
  }
}

// The program's entry point calls this function instead of the C library's, which is the next symbol of that name.
int __libc_start_main(Main *main, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end);

int __libc_start_main(Main *main, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end) {
  int (*start)(Main *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
  *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
  const char *descriptor = getenv("MLGO_FORK_SERVER");
  if (descriptor != NULL)
    client = atoi(descriptor);
  in_sandbox = getenv("MLGO_FORK_SERVER_SANDBOX") != NULL;
  program_main = main;
  return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
