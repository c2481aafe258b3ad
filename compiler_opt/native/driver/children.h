// Runs compilers: holds back their output until it is known to be needed, and passes on exit statuses and signals.

#ifndef COMPILER_OPT_NATIVE_DRIVER_CHILDREN_H_
#define COMPILER_OPT_NATIVE_DRIVER_CHILDREN_H_

#include "files.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace mlgo {

// How a child ended, and its output if that was kept.
struct Outcome {
  int status = 0;  // of waitpid
  std::string out, err;

  bool ok() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

  // Whether it died from a signal that asks the whole build to stop.
  bool interrupted() const {
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM ||
                                   WTERMSIG(status) == SIGHUP || WTERMSIG(status) == SIGQUIT);
  }

  // Whether all of the output could be passed on, perhaps without waiting for readers; errno says why not.
  bool replay(bool waits = true) const {
    return write_all(STDOUT_FILENO, out, waits) && write_all(STDERR_FILENO, err, waits);
  }
};

// Ends this process as the child ended: with its exit status, or by its signal.
[[noreturn]] inline void exit_like(const Outcome &outcome) {
  if (!WIFSIGNALED(outcome.status))
    _exit(WEXITSTATUS(outcome.status));
  const int number = WTERMSIG(outcome.status);
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(number);
  _exit(128 + number);
}

// A program, and what it is given: first the name that it is called by.
struct Command {
  std::string program;
  std::vector<std::string> arguments;
};

// A command as exec takes it; it refers to the strings of `command`.
class Executable {
 public:
  explicit Executable(const Command &command) : program_(command.program.c_str()) {
    for (const std::string &argument : command.arguments)
      arguments_.push_back(const_cast<char *>(argument.c_str()));
    arguments_.push_back(nullptr);
  }

  // Replaces this process by the program.
  [[noreturn]] void exec() const {
    execv(program_, arguments_.data());
    const std::string reason = std::strerror(errno);
    write_all(STDERR_FILENO, "error: mlgo: " + std::string(program_) + ": cannot be run: " + reason + "\n");
    _exit(127);
  }

 private:
  const char *const program_;
  std::vector<char *> arguments_;
};

// Opens /dev/null where a standard stream is closed, as clang does, so that no other file takes its place.
inline void open_standard_streams() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null", O_RDWR);
}

// Why this process cannot watch a compiler, though that could run; empty if it can.
inline std::string process_problem() {
  int files[16], number = 0;
  while (number < 16 && (files[number] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
    ++number;
  for (int index = 0; index < number; ++index)
    close(files[index]);
  if (number < 16)
    return "too few files can be opened (ulimit -n)";
  return access("/proc/self/fd", X_OK) == 0 ? "" : "/proc is not mounted";
}

// Runs one child at a time. If a signal asks this process to end, the child handles it first, so that it can remove its
// incomplete output files.
class Children {
 public:
  Children() {
    // Ignored, as some build systems leave it, it would keep the exit statuses of children from us.
    ::signal(SIGCHLD, SIG_DFL);
    sigemptyset(&handled_);
    for (const int number : kSignals) {
      struct sigaction action;
      // A signal that is ignored stays ignored, as under nohup.
      if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN)
        continue;
      action = {};
      action.sa_handler = [](int caught) { signal_ = caught; };
      sigaction(number, &action, nullptr);
      sigaddset(&handled_, number);
    }
    // The signals are delivered during ppoll only.
    sigprocmask(SIG_BLOCK, &handled_, &outside_);
  }
  ~Children() { restore_signals(); }
  Children(const Children &) = delete;
  Children &operator=(const Children &) = delete;

  // Runs a command and waits for it. With `keep_output`, its output is in the outcome; otherwise it goes to ours. The
  // child inherits our open files, except for the `hidden` ones.
  Outcome run(const Command &command, bool keep_output, const std::vector<int> &hidden = {}) {
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    const Executable executable(command);
    if (keep_output && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0))
      exec_with_default_signals(executable);
    const pid_t parent = getpid();
    // vfork: the child uses our memory until exec, which avoids copying page tables.
    const pid_t child = vfork();
    if (child < 0)
      exec_with_default_signals(executable);
    if (child == 0) {
      // If this process is killed by SIGKILL, the child still ends and removes its files.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent)
        _exit(1);
      if (keep_output) {
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
      }
      for (const int file : hidden)
        hide(file);
      exec_with_default_signals(executable);
    }
    Outcome outcome;
    if (keep_output) {
      close(out[1]);
      close(err[1]);
    }
    wait_for(child, out[0], err[0], &outcome);
    return outcome;
  }

  // The signal that asked this process to end, or 0.
  static int signal() { return signal_; }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

  void restore_signals() const {
    // A child shares our memory until exec: a handler that runs in it would record a signal that we did not receive.
    for (const int number : kSignals)
      if (sigismember(&handled_, number) == 1)
        ::signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &outside_, nullptr);
  }

  [[noreturn]] void exec_with_default_signals(const Executable &executable) const {
    restore_signals();
    executable.exec();
  }

  // Closes the file, so that opening /dev/fd/N fails. Standard input is replaced by a directory, which cannot be read,
  // so that no other file gets its number.
  static void hide(int file) {
    close(file);
    if (file == STDIN_FILENO)
      (void)!open("/", O_RDONLY | O_DIRECTORY);
  }

  void wait_for(pid_t child, int out, int err, Outcome *outcome) const {
    const int process = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
    pollfd events[] = {{process, POLLIN, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
    bool forwarded = signal_ != 0;
    while (events[0].fd >= 0 || events[1].fd >= 0 || events[2].fd >= 0) {
      // Usually the whole process group received the signal, and a second one would interrupt the compiler's cleanup.
      const timespec grace = {0, 200'000'000};
      const bool waiting = signal_ != 0 && !forwarded;
      const int ready = ppoll(events, 3, waiting ? &grace : nullptr, &outside_);
      if (ready < 0 && errno != EINTR)
        break;
      if (ready == 0) {
        kill(child, signal_);
        forwarded = true;
      }
      if (ready <= 0)
        continue;
      const bool ended = events[0].fd >= 0 && events[0].revents != 0;
      if (events[1].fd >= 0 && events[1].revents != 0 && !read_some(events[1].fd, &outcome->out))
        events[1].fd = -1;
      if (events[2].fd >= 0 && events[2].revents != 0 && !read_some(events[2].fd, &outcome->err))
        events[2].fd = -1;
      if (ended) {
        // Background processes of the child may keep the pipes open for ever.
        drain(events[1].fd, &outcome->out);
        drain(events[2].fd, &outcome->err);
        break;
      }
    }
    pid_t ended;
    while ((ended = waitpid(child, &outcome->status, 0)) < 0 && errno == EINTR) {
    }
    if (ended != child) {  // Without a status, it counts as failed.
      outcome->status = W_EXITCODE(1, 0);
      outcome->err += std::string("error: mlgo: cannot wait for the compiler: ") + std::strerror(errno) + "\n";
    }
    for (const int file : {process, out, err})
      if (file >= 0)
        close(file);
  }

  // Returns false at the end of the file, or if no data is available.
  static bool read_some(int file, std::string *text) {
    char chunk[1 << 14];
    const ssize_t size = read(file, chunk, sizeof chunk);
    if (size > 0)
      text->append(chunk, static_cast<size_t>(size));
    return size > 0 || (size < 0 && errno == EINTR);
  }

  static void drain(int file, std::string *text) {
    if (file < 0)
      return;
    fcntl(file, F_SETFL, O_NONBLOCK);
    while (read_some(file, text)) {
    }
  }

  static inline volatile sig_atomic_t signal_ = 0;
  sigset_t handled_, outside_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_CHILDREN_H_
