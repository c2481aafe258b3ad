// Builds each kind of index of dense and sparse vectors and of words, and searches for the nearest ones.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

enum LogChoice { kNoLog };

namespace similarity {
struct AnyParams {
  std::vector<std::string> names, values;
};

struct Object {
  ~Object() = delete;  // It is inline in the library: ours stay.
  char *buffer;
  bool owned;
};
using Objects = std::vector<const Object *>;

struct Keep {
  void operator()(Object *) const {}
};

template <typename Distance>
class Space {
 public:
  virtual ~Space();
  virtual Distance ProxyDistance(const Object *left, const Object *right) const;
  virtual std::string StrDesc() const = 0;
  virtual void *CreatePivotIndex(const Objects &pivots, std::size_t hash_dim) const;
  virtual std::unique_ptr<Object, Keep> CreateObjFromStr(int id, int label, const std::string &, void *state) const = 0;
};

template <typename Distance>
struct Queue {
  std::vector<std::pair<Distance, const Object *>> heap;
};

template <typename Distance>
class KNNQuery {
 public:
  KNNQuery(const Space<Distance> &space, const Object *query, unsigned count, float epsilon);
  const Queue<Distance> *Result() const;

 private:
  void *members_[16];
};

template <typename Distance>
class Index {
 public:
  virtual void CreateIndex(const AnyParams &params) = 0;
  virtual void SaveIndex(const std::string &path);
  virtual void LoadIndex(const std::string &path);
  virtual ~Index();
  virtual void Search(void *range_query, int start) const = 0;
  virtual void Search(KNNQuery<Distance> *query, int start) const = 0;
  virtual const std::string StrDesc() const = 0;
  virtual void SetQueryTimeParams(const AnyParams &params) = 0;
};

template <typename Distance>
using Method = Index<Distance> *(bool progress, const std::string &space_name, Space<Distance> &, const Objects &data);

#define METHOD(name) \
  template <typename D> \
  Index<D> *name(bool progress, const std::string &space_name, Space<D> &space, const Objects &data)
METHOD(CreateHnsw);
METHOD(CreateVPTree);
METHOD(CreateSeqSearch);
METHOD(CreateSimplInvIndex);
METHOD(CreateSmallWorldRand);
METHOD(CreatePivotNeighbInvertedIndex);
template <typename D> Space<D> *CreateL1(const AnyParams &params);
template <typename D> Space<D> *CreateL2(const AnyParams &params);
template <typename D> Space<D> *CreateCosineSimilarity(const AnyParams &params);
template <typename D> Space<D> *CreateSparseCosineSimilarity(const AnyParams &params);
Space<float> *CreateSparseNegativeScalarProductFast(const AnyParams &params);
Space<int> *CreateLevenshtein(const AnyParams &params);

void initLibrary(int seed, LogChoice log, const char *path);
}  // namespace similarity

using namespace similarity;

enum { kObjects = 600, kQueries = 60, kNearest = 8, kDim = 16, kTerms = 300 };

static unsigned state = 1;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

static std::string dense() {
  std::string result;
  const unsigned cluster = draw(10);
  for (unsigned i = 0; i < kDim; ++i) result += std::to_string(1 + cluster * i * 37 % 100 + draw(40)) + " ";
  return result;
}

static std::string sparse() {
  std::string result;
  for (unsigned term = draw(20); term < kTerms; term += 1 + draw(40))
    result += std::to_string(term) + ":0." + std::to_string(1 + draw(999)) + " ";
  return result;
}

static std::string word() {
  static const char *const kSyllables[] = {"ka", "to", "mi", "ren", "sol", "ve", "qui", "an"};
  std::string result;
  for (unsigned left = 2 + draw(3); left > 0; --left) result += kSyllables[draw(8)];
  return result;
}

template <typename Distance>
static void search(const char *name, Method<Distance> *method, Space<Distance> *space, std::string (*text)(),
                   const AnyParams &params) {
  Objects &data = *new Objects(kObjects);
  for (int i = 0; i < kObjects; ++i) data[i] = space->CreateObjFromStr(i, -1, text(), nullptr).release();
  Index<Distance> *index = method(false, name, *space, data);
  index->CreateIndex(params);
  index->SetQueryTimeParams({});
  // Addresses decide which of several objects at the same distance is found, so only distances are printed.
  double sum = 0, weighted = 0;
  for (int i = 0; i < kQueries; ++i) {
    const Object *object = space->CreateObjFromStr(i, -1, text(), nullptr).release();
    auto &query = *new KNNQuery<Distance>(*space, object, kNearest, 0);
    index->Search(&query, -1);
    for (const auto &[distance, near] : query.Result()->heap) {
      sum += distance;
      weighted += distance * (i + 1.0);
    }
  }
  std::printf("%s %.3f %.2f\n", name, sum, weighted);
}

int main() {
  initLibrary(0, kNoLog, nullptr);
  const AnyParams none, hnsw{{"M", "efConstruction", "indexThreadQty"}, {"8", "40", "1"}};
  const AnyParams graph{{"NN", "efConstruction", "indexThreadQty"}, {"6", "10", "1"}};
  const AnyParams pivots{{"numPivot", "numPivotIndex", "chunkIndexSize", "indexThreadQty"}, {"64", "8", "600", "1"}};
  const AnyParams tree{{"bucketSize"}, {"20"}};
  search<float>("hnsw l2", CreateHnsw, CreateL2<float>(none), dense, hnsw);
  search<float>("hnsw sparse", CreateHnsw, CreateSparseCosineSimilarity<float>(none), sparse, hnsw);
  search<float>("graph cosine", CreateSmallWorldRand, CreateCosineSimilarity<float>(none), dense, graph);
  search<int>("graph words", CreateSmallWorldRand, CreateLevenshtein(none), word, graph);
  search<float>("tree l1", CreateVPTree, CreateL1<float>(none), dense, tree);
  search<int>("tree words", CreateVPTree, CreateLevenshtein(none), word, tree);
  search<float>("pivots l2", CreatePivotNeighbInvertedIndex, CreateL2<float>(none), dense, pivots);
  search<float>("inverted", CreateSimplInvIndex, CreateSparseNegativeScalarProductFast(none), sparse, none);
  search<float>("sequential", CreateSeqSearch, CreateL2<float>(none), dense, none);
  return 0;
}
