// Solves a transport problem by both simplex methods, with and without presolving, and again after changes, a
// mixed-integer problem, and a quadratic one, also from a file.
#include <alloca.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

extern "C" {
void *Highs_create();
void Highs_destroy(void *highs);
int Highs_setBoolOptionValue(void *highs, const char *option, int value);
int Highs_setIntOptionValue(void *highs, const char *option, int value);
int Highs_setStringOptionValue(void *highs, const char *option, const char *value);
int Highs_changeColCost(void *highs, int column, double cost);
int Highs_passModel(void *highs, int columns, int rows, int nonzeros, int squares, int format, int square_format,
                    int sense, double offset, const double *cost, const double *lower, const double *upper,
                    const double *row_lower, const double *row_upper, const int *start, const int *index,
                    const double *value, const int *square_start, const int *square_index, const double *square_value,
                    const int *integrality);
int Highs_readModel(void *highs, const char *path);
int Highs_writeModel(void *highs, const char *path);
int Highs_run(void *highs);
int Highs_getModelStatus(const void *highs);
double Highs_getObjectiveValue(const void *highs);
int Highs_getIntInfoValue(const void *highs, const char *info, int *value);

// There are no optional libraries.
struct Feature {
  const char *provider, *version, *license;
  bool enabled;
};
bool HighsExtras_getApi(void *) { return false; }
const Feature *HighsExtras_getFeatureInfo() {
  static const Feature features[16] = {};
  return features;
}
}

// Mixed-integer problems are also tried by interior points, of which a corpus has only the interface: it fails.
struct HighsLpSolverObject;
enum class HighsStatus { kError = -1 };
HighsStatus solveLpIpx(HighsLpSolverObject &) { return HighsStatus::kError; }

static unsigned state = 1;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

struct Problem {
  std::vector<double> cost, lower, upper, row_lower, row_upper, value, square_value;
  std::vector<int> start, index, square_start, square_index, integrality;

  void add_column(double its_cost, double its_upper, bool integer = false) {
    cost.push_back(its_cost);
    lower.push_back(0);
    upper.push_back(its_upper);
    integrality.push_back(integer);
  }

  void add_row(double its_lower, double its_upper) {
    row_lower.push_back(its_lower);
    row_upper.push_back(its_upper);
    start.push_back(index.size());
  }

  void add(int column, double its_value) {
    index.push_back(column);
    value.push_back(its_value);
  }

  void *pass(const char *presolve, int simplex) const {
    enum { kRowwise = 2, kTriangular = 1, kMinimize = 1 };
    void *highs = Highs_create();
    Highs_setBoolOptionValue(highs, "output_flag", 0);
    Highs_setStringOptionValue(highs, "parallel", "off");
    Highs_setIntOptionValue(highs, "threads", 1);
    Highs_setStringOptionValue(highs, "presolve", presolve);
    Highs_setIntOptionValue(highs, "simplex_strategy", simplex);
    // It takes half of all instructions, whatever the problem.
    Highs_setBoolOptionValue(highs, "mip_heuristic_run_feasibility_jump", 0);
    Highs_passModel(highs, cost.size(), row_lower.size(), index.size(), square_index.size(), kRowwise, kTriangular,
                    kMinimize, 0, cost.data(), lower.data(), upper.data(), row_lower.data(), row_upper.data(),
                    start.data(), index.data(), value.data(), square_start.data(), square_index.data(),
                    square_value.data(), square_index.empty() ? integrality.data() : nullptr);
    return highs;
  }
};

static void solve(void *highs, const char *name) {
  Highs_run(highs);
  std::printf("%s %d %.6f", name, Highs_getModelStatus(highs), Highs_getObjectiveValue(highs));
  for (const char *info : {"simplex_iteration_count", "qp_iteration_count", "mip_node_count"}) {
    int count = 0;
    Highs_getIntInfoValue(highs, info, &count);
    std::printf(" %d", count);
  }
  std::printf("\n");
}

// Goods go from sources to sinks, at a cost and within a capacity of each way.
static Problem transport(int sources, int sinks) {
  Problem result;
  for (int i = 0; i < sources * sinks; ++i) result.add_column(1 + draw(1000) * 0.1, 10 + draw(30));
  for (int i = 0; i < sources; ++i) {
    result.add_row(0, 100 + draw(40));
    for (int j = 0; j < sinks; ++j) result.add(i * sinks + j, 1);
  }
  for (int j = 0; j < sinks; ++j) {
    result.add_row(50 + draw(30), 1e30);
    for (int i = 0; i < sources; ++i) result.add(i * sinks + j, 1);
  }
  return result;
}

// Knapsacks share a set of things, some of which exclude one another.
static Problem knapsacks(int things, int sacks) {
  Problem result;
  for (int i = 0; i < things; ++i) result.add_column(-10.0 - draw(50), 1 + (i % 3 == 0), true);
  for (int sack = 0; sack < sacks; ++sack) {
    result.add_row(0, things * 8);
    for (int i = 0; i < things; ++i) result.add(i, 5 + draw(40));
  }
  for (int i = 0; i + 4 < things; i += 3) {
    result.add_row(0, 1);
    result.add(i + 1, 1);
    result.add(i + 4, 1);
  }
  return result;
}

// Shares of a sum that has a mean, and as little variance as possible.
static Problem portfolio(int shares) {
  Problem result;
  for (int i = 0; i < shares; ++i) {
    result.add_column(0, 0.2);
    result.square_start.push_back(result.square_index.size());
    for (int j = i; j < shares; j += 5) {
      result.square_index.push_back(j);
      result.square_value.push_back(i == j ? 20 + draw(200) * 0.1 : draw(100) * 0.002);
    }
  }
  result.add_row(1, 1);
  for (int i = 0; i < shares; ++i) result.add(i, 1);
  result.add_row(1.6, 1e30);
  for (int i = 0; i < shares; ++i) result.add(i, 1 + draw(100) * 0.01);
  return result;
}

int main(int, char **arguments) {
  // What libc's functions on memory execute depends on where in a page the stack is, which the environment shifts.
  static void *volatile unused = alloca(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) % 4096);
  static_cast<void>(unused);
  enum { kSources = 45, kSinks = 55, kDual = 1, kPrimal = 4 };
  const Problem problem = transport(kSources, kSinks);
  for (const int simplex : {kDual, kPrimal})
    for (const char *presolve : {"on", "off"}) {
      void *highs = problem.pass(presolve, simplex);
      solve(highs, presolve);
      for (int change = 0; change < 100; ++change) Highs_changeColCost(highs, draw(kSources * kSinks), draw(500) * 0.2);
      solve(highs, "again");
      Highs_destroy(highs);
    }
  void *integers = knapsacks(30, 4).pass("on", kDual), *quadratic = portfolio(130).pass("on", kDual);
  solve(integers, "integers");
  solve(quadratic, "quadratic");
  const std::string path = arguments[1] + std::string("/model.mps");
  Highs_writeModel(quadratic, path.c_str());
  Highs_readModel(quadratic, path.c_str());
  solve(quadratic, "read");
  Highs_destroy(integers);
  Highs_destroy(quadratic);
  return 0;
}
