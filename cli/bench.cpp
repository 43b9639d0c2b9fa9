// attend bench: the measuring program of the Python package, run by the interpreter that belongs to this command.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "commands.hpp"

extern char** environ;

namespace attend::cli {

namespace {

namespace fs = std::filesystem;

/// The interpreter beside this command, as a wheel installs it, or `python3`, which PATH says where to find.
std::string interpreter() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    for (const char* name : {"python", "python3"}) {
      const fs::path beside = self.parent_path() / name;
      if (access(beside.c_str(), X_OK) == 0) return beside.string();
    }
  }
  return "python3";
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

[[noreturn]] void refuse_interpreter(const std::string& python, int error) {
  throw usage_error("expected Python with the package attend, got " + python + ": " + std::strerror(error));
}

/// Whether the interpreter has the package with its benchmark. Nothing of it is shown: the one line about it is ours.
bool has_benchmark(const std::string& python) {
  std::vector<std::string> words{python, "-c",
                                 "import importlib.util, sys\n"
                                 "try:\n    sys.exit(importlib.util.find_spec('attend.bench') is None)\n"
                                 "except ImportError:\n    sys.exit(1)"};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, python.c_str(), &quiet, nullptr, pointers(words).data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (error != 0) refuse_interpreter(python, error);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) refuse_interpreter(python, errno);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

void bench(const std::vector<std::string>& given) {
  const std::string python = interpreter();
  if (!has_benchmark(python))
    throw usage_error("expected the Python package attend (pip install attend), got " + python + " without it");
  std::vector<std::string> words{python, "-m", "attend.bench"};
  words.insert(words.end(), given.begin(), given.end());
  // In this process: signals, the terminal and the exit code are then those of the program, without anything between.
  execvp(python.c_str(), pointers(words).data());
  refuse_interpreter(python, errno);
}

}  // namespace attend::cli
