// CryptoMiniSat: random 3-SAT near the threshold, and a pigeonhole problem, which has no solution.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Solver Solver;
typedef struct {
  uint32_t x;
} Literal;
typedef struct {
  uint8_t x;
} Truth;
typedef struct {
  const Truth *values;
  size_t count;
} Truths;

Solver *cmsat_new(void);
void cmsat_free(Solver *);
void cmsat_new_vars(Solver *, size_t);
bool cmsat_add_clause(Solver *, const Literal *, size_t);
Truth cmsat_solve(Solver *);
Truths cmsat_get_model(const Solver *);

static uint32_t state = 12345;

static uint32_t random_below(uint32_t bound) {
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % bound;
}

static Literal literal(uint32_t variable, bool negated) {
  Literal result = {2 * variable + negated};
  return result;
}

static void random_clauses(uint32_t variables, uint32_t clauses) {
  Solver *solver = cmsat_new();
  cmsat_new_vars(solver, variables);
  for (uint32_t number = 0; number < clauses; number++) {
    Literal clause[3];
    for (int place = 0; place < 3; place++)
      clause[place] = literal(random_below(variables), random_below(2));
    cmsat_add_clause(solver, clause, 3);
  }
  int result = cmsat_solve(solver).x;
  unsigned checksum = 0;
  if (result == 0) {
    Truths model = cmsat_get_model(solver);
    for (size_t variable = 0; variable < model.count; variable++)
      checksum = checksum * 31 + model.values[variable].x;
  }
  printf("%u variables, %u clauses: %d %08x\n", variables, clauses, result, checksum);
  cmsat_free(solver);
}

static void pigeons(uint32_t holes) {
  Solver *solver = cmsat_new();
  cmsat_new_vars(solver, (size_t)holes * (holes + 1));
  for (uint32_t pigeon = 0; pigeon <= holes; pigeon++) {
    Literal clause[16];
    for (uint32_t hole = 0; hole < holes; hole++)
      clause[hole] = literal(pigeon * holes + hole, false);
    cmsat_add_clause(solver, clause, holes);
  }
  for (uint32_t hole = 0; hole < holes; hole++)
    for (uint32_t one = 0; one <= holes; one++)
      for (uint32_t other = 0; other < one; other++) {
        Literal clause[2] = {literal(one * holes + hole, true), literal(other * holes + hole, true)};
        cmsat_add_clause(solver, clause, 2);
      }
  printf("%u pigeons in %u holes: %d\n", holes + 1, holes, cmsat_solve(solver).x);
  cmsat_free(solver);
}

int main(void) {
  for (uint32_t clauses = 646; clauses <= 748; clauses += 34)
    random_clauses(170, clauses);
  pigeons(6);
}
