// A trained policy network in plain C++17: no heap, no exceptions, no dependency but the standard headers.
//
//   compiler_opt::PolicyNetwork network;
//   if (const char *error = network.load(blob, size)) ...;        // the blob is invalid
//   float logits[compiler_opt::PolicyNetwork::kMaxActions];
//   network.logits(features, logits);                             // features in the order of feature_name(i)
//
// The blob is a policy's native form, `network.mlgo`, which compiler_opt/spaces/native.py writes and describes. It is
// used in place: map the file, or embed it aligned to 8 bytes. load() checks all of it, so that a damaged or hostile
// blob is rejected and never read out of bounds.
//
// Evaluation: each feature is replaced by its rank among the vocabulary's quantiles, so that the first dense layer has
// one of a few inputs per feature. The blob contains a table of this layer's products. A decision finds one row per
// feature, adds the rows, and evaluates the remaining dense layers, with a ReLU before each. Where several networks are
// side by side in one, most of a layer's weights are zero; the inputs that no column of a lane uses are skipped.
//
// In a recurrent network, the first layer is an LSTM, whose state the caller keeps from one decision of a module to the
// next, beginning with an empty one:
//
//   compiler_opt::PolicyNetwork::State state;
//   network.logits(features, logits, state);                      // for each decision of the module, in order
//
// All sums have a fixed order and no fused multiply-adds, with any compiler: the same blob and features give the same
// bits on every x86-64 machine. GCC and clang compile the evaluation twice, also for CPUs with AVX2, which add and
// multiply eight floats at a time, each as before.

#ifndef COMPILER_OPT_NATIVE_POLICY_NETWORK_H_
#define COMPILER_OPT_NATIVE_POLICY_NETWORK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

// GCC fuses multiply-adds by default, and vectorises these loops well at -O3 only.
#if defined(__GNUC__) && !defined(__clang__)
#define COMPILER_OPT_KERNEL __attribute__((optimize("O3", "fp-contract=off")))
#else
#define COMPILER_OPT_KERNEL
#endif
#if defined(__GNUC__)  // clang defines it, too.
#define COMPILER_OPT_INLINE COMPILER_OPT_KERNEL __attribute__((always_inline)) inline
#else
#define COMPILER_OPT_INLINE inline
#endif

namespace compiler_opt {

namespace internal {

using Crc32Tables = std::array<std::array<uint32_t, 256>, 8>;

// Tables for eight bytes at a time ("slicing by 8", Kounavis and Berry 2005): a blob may have more than a megabyte.
constexpr Crc32Tables make_crc32_tables() {
  Crc32Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][byte] = value;
  }
  for (size_t slice = 1; slice < 8; ++slice)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[slice][byte] = (tables[slice - 1][byte] >> 8) ^ tables[0][tables[slice - 1][byte] & 0xFF];
  return tables;
}

inline constexpr Crc32Tables kCrc32Tables = make_crc32_tables();

// The CRC-32 of zlib and PNG.
inline uint32_t crc32(const unsigned char *bytes, size_t size) {
  const Crc32Tables &tables = kCrc32Tables;
  uint32_t crc = 0xFFFFFFFFu;
  for (; size >= 8; size -= 8, bytes += 8) {
    uint32_t low, high;
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= crc;
    crc = tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF] ^ tables[5][(low >> 16) & 0xFF] ^ tables[4][low >> 24] ^
          tables[3][high & 0xFF] ^ tables[2][(high >> 8) & 0xFF] ^ tables[1][(high >> 16) & 0xFF] ^ tables[0][high >> 24];
  }
  for (; size != 0; --size, ++bytes)
    crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 0xFF];
  return ~crc;
}

}  // namespace internal

// A network in a blob, which must outlive it. Cheap to copy; several threads may use one concurrently.
class PolicyNetwork {
 public:
  static constexpr uint32_t kVersion = 1, kVersionWithMargin = 2, kVersionWithLstm = 3;
  static constexpr size_t kMaxFeatures = 512;
  static constexpr size_t kMaxWidth = 1024;  // outputs of a layer
  static constexpr size_t kMaxActions = kMaxWidth;
  static constexpr size_t kMaxLayers = 16;  // including the first, whose products are a table
  static constexpr size_t kLane = 16;       // rows are zero-padded to a multiple of this number of floats
  static constexpr size_t kNarrow = 4;      // columns evaluated for a layer with no more outputs than this
  static constexpr size_t kMaxUnits = kMaxWidth / 4;  // of the LSTM, which has four gates per unit

  // What a recurrent network remembers of a module's earlier decisions. A new one remembers nothing.
  struct State {
    alignas(64) float output[kMaxUnits] = {};
    alignas(64) float cell[kMaxUnits] = {};
  };

  // Uses a blob of `size` bytes in place. Returns nullptr, or a one-line error message; the network is then empty: it
  // has no features, and logits() must not be called. The checksum, which takes longest, is not compared if the blob is a
  // part of the program, and thus as intact as that.
  const char *load(const void *blob, size_t size, bool is_embedded = false) {
    PolicyNetwork loaded;
    if (const char *error = loaded.parse(static_cast<const unsigned char *>(blob), size, is_embedded)) {
      *this = PolicyNetwork();
      return error;
    }
    *this = loaded;
    return nullptr;
  }

  size_t num_features() const { return num_features_; }

  // LLVM's name of the feature; takes time proportional to i.
  const char *feature_name(size_t i) const {
    const char *name = names_;
    for (; i != 0; --i)
      name += std::strlen(name) + 1;
    return name;
  }

  size_t num_actions() const { return num_layers_ == 0 ? 0 : widths_[num_layers_ - 1]; }

  // A greedy policy takes the default decision where its two logits differ by less than this; 0 for most policies.
  double margin() const { return margin_; }

  // A JSON text about the policy's origin, which this class does not interpret.
  const char *metadata() const { return metadata_; }

  // Whether decisions depend on the module's earlier ones.
  bool is_recurrent() const { return lstm_units_ != 0; }

  // Maps num_features() values, in the policy's order, to num_actions() unnormalised log-probabilities. A recurrent
  // network evaluates them as a module's first decision.
  void logits(const int64_t *features, float *out) const {
    if (is_recurrent()) {
      State state;
      evaluate(features, out, &state);
    } else {
      evaluate(features, out, nullptr);
    }
  }

  // The same for the next decision of a module, whose state is updated. Other networks leave the state alone.
  void logits(const int64_t *features, float *out, State &state) const {
    evaluate(features, out, is_recurrent() ? &state : nullptr);
  }

 private:
  // `state` is null unless the network is recurrent.
  COMPILER_OPT_KERNEL void evaluate(const int64_t *features, float *out, State *state) const {
#if defined(__GNUC__) && defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
      return evaluate_by_avx2(features, out, state);
#endif
    evaluate_inline(features, out, state);
  }

#if defined(__GNUC__) && defined(__x86_64__)
  __attribute__((target("avx2"))) COMPILER_OPT_KERNEL void evaluate_by_avx2(const int64_t *features, float *out,
                                                                            State *state) const {
    evaluate_inline(features, out, state);
  }
#endif

  COMPILER_OPT_INLINE void evaluate_inline(const int64_t *features, float *out, State *state) const {
    alignas(64) float buffers[2][kMaxWidth];
    const float *rows[kMaxFeatures];
    find_rows(features, rows);
    float *activations = buffers[0], *next = buffers[1];
    add_rows(rows, activations);
    if (state != nullptr) {
      remember(activations, *state);
      std::memcpy(activations, state->output, lstm_units_ * sizeof(float));
    }
    const float *parameters = layers_;
    for (size_t layer = 1; layer < num_layers_; ++layer) {
      parameters = dense(activations, layer, parameters, next);
      float *previous = activations;
      activations = next;
      next = previous;
    }
    std::memcpy(out, activations, num_actions() * sizeof(float));
  }

  // The blob's header; little-endian.
  struct Prologue {
    unsigned char magic[8];
    uint32_t version;
    uint32_t checksum;  // CRC-32 of everything after this field
    uint64_t size;      // of the blob, in bytes
    uint32_t num_features;
    uint32_t num_layers;
    uint32_t names_bytes;
    uint32_t metadata_bytes;
  };
  static_assert(sizeof(Prologue) == 40, "no padding");
  static constexpr size_t kChecksummedFrom = 16;

  static size_t padded(size_t width) { return (width + kLane - 1) / kLane * kLane; }
  static uint64_t aligned(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

  const char *parse(const unsigned char *blob, size_t size, bool is_embedded) {
    Prologue prologue;
    if (blob == nullptr || size < sizeof(prologue))
      return "not a policy network: too short";
    if (reinterpret_cast<uintptr_t>(blob) % 8 != 0)
      return "the policy network is not aligned to 8 bytes";
    std::memcpy(&prologue, blob, sizeof(prologue));
    if (std::memcmp(prologue.magic, "mlgo-net", sizeof(prologue.magic)) != 0)
      return "not a policy network: expected it to begin with `mlgo-net`";
    if (prologue.version < kVersion || prologue.version > kVersionWithLstm)
      return prologue.version == kVersion << 24 || prologue.version == kVersionWithMargin << 24 ||
                     prologue.version == kVersionWithLstm << 24
                 ? "the policy network needs a little-endian machine"
                 : "the policy network has another format version; export it again";
    if (prologue.size != size)
      return prologue.size > size ? "the policy network is truncated"
                                  : "the policy network is longer than its header says";
    if (!is_embedded && internal::crc32(blob + kChecksummedFrom, size - kChecksummedFrom) != prologue.checksum)
      return "the policy network is damaged: its checksum does not match";
    return parse_sections(blob, size, prologue);
  }

  // No product or sum below overflows 64 bits: 2^9 features, 2^32 boundaries each, 2^10 columns, 2^2 bytes.
  const char *parse_sections(const unsigned char *blob, uint64_t size, const Prologue &prologue) {
    if (prologue.num_features == 0 || prologue.num_features > kMaxFeatures)
      return "the policy network's number of features is out of range";
    if (prologue.num_layers == 0 || prologue.num_layers > kMaxLayers)
      return "the policy network's number of layers is out of range";
    num_features_ = prologue.num_features;
    num_layers_ = prologue.num_layers;

    uint64_t end = sizeof(Prologue);
    if (prologue.version != kVersion) {
      end += sizeof margin_;
      if (end > size)
        return "the policy network's sections exceed its size";
      std::memcpy(&margin_, blob + sizeof(Prologue), sizeof margin_);
      // No comparison with NaN is true.
      const bool in_range = prologue.version == kVersionWithLstm ? margin_ >= 0 : margin_ > 0;
      if (!(in_range && margin_ <= std::numeric_limits<double>::max()))
        return "the policy network's margin is not a positive number";
    }
    if (prologue.version == kVersionWithLstm) {
      uint32_t units[2];
      if (end + sizeof units > size)
        return "the policy network's sections exceed its size";
      std::memcpy(units, blob + end, sizeof units);
      end += sizeof units;
      if (units[0] == 0 || units[0] > kMaxUnits || units[1] != 0 || num_layers_ < 2)
        return "the policy network's number of recurrent units is out of range";
      lstm_units_ = units[0];
    }
    auto section = [&](uint64_t bytes) -> const unsigned char * {
      const uint64_t begin = end;
      end += aligned(bytes);
      return end <= size ? blob + begin : nullptr;
    };

    const unsigned char *widths = section(num_layers_ * sizeof(uint32_t));
    const unsigned char *counts = section(num_features_ * sizeof(uint32_t));
    if (widths == nullptr || counts == nullptr)
      return "the policy network's sections exceed its size";
    std::memcpy(widths_, widths, num_layers_ * sizeof(uint32_t));
    counts_ = reinterpret_cast<const uint32_t *>(counts);
    for (size_t layer = 0; layer < num_layers_; ++layer)
      if (widths_[layer] == 0 || widths_[layer] > kMaxWidth)
        return "the width of one of the policy network's layers is out of range";
    if (is_recurrent() && widths_[0] != 4 * lstm_units_)
      return "the policy network's first layer does not have four gates for each recurrent unit";
    uint64_t num_boundaries = 0;
    for (size_t feature = 0; feature < num_features_; ++feature)
      num_boundaries += counts_[feature];

    const uint64_t first_row = padded(widths_[0]) * sizeof(float);
    const unsigned char *boundaries = section(num_boundaries * sizeof(int64_t));
    const unsigned char *bias = section(first_row);
    const unsigned char *table = section((num_boundaries + num_features_) * first_row);
    const unsigned char *recurrent = section(lstm_units_ * first_row);
    uint64_t rows = 0;  // floats of all dense layers
    for (size_t layer = 1; layer < num_layers_; ++layer)
      rows += (uint64_t{1} + inputs_of(layer)) * padded(widths_[layer]);
    const unsigned char *layers = section(rows * sizeof(float));
    const unsigned char *names = section(prologue.names_bytes);
    const unsigned char *metadata = section(prologue.metadata_bytes);
    if (metadata == nullptr || end != size)
      return "the policy network's sections do not add up to its size";

    boundaries_ = reinterpret_cast<const int64_t *>(boundaries);
    bias_ = reinterpret_cast<const float *>(bias);
    table_ = reinterpret_cast<const float *>(table);
    recurrent_ = reinterpret_cast<const float *>(recurrent);
    layers_ = reinterpret_cast<const float *>(layers);
    names_ = reinterpret_cast<const char *>(names);
    metadata_ = reinterpret_cast<const char *>(metadata);
    find_used_inputs();
    size_t num_names = 0;
    for (size_t i = 0; i < prologue.names_bytes; ++i) {
      if (names_[i] != '\0')
        continue;
      if (i == 0 || names_[i - 1] == '\0')
        return "one of the policy network's features has no name";
      ++num_names;
    }
    if (num_names != num_features_ || names_[prologue.names_bytes - 1] != '\0')
      return "the policy network's feature names do not match its number of features";
    if (prologue.metadata_bytes == 0 || metadata_[prologue.metadata_bytes - 1] != '\0')
      return "the policy network's metadata is not NUL-terminated";
    return nullptr;
  }

  // The number of inputs of a layer from the second on.
  size_t inputs_of(size_t layer) const { return layer == 1 && is_recurrent() ? lstm_units_ : widths_[layer - 1]; }

  // The inputs of a layer that its lane of columns has weights for: the range from the first to the last of them.
  struct UsedInputs {
    uint16_t begin, end;
  };

  void find_used_inputs() {
    const float *parameters = layers_;
    for (size_t layer = 1; layer < num_layers_; ++layer) {
      const size_t in_width = inputs_of(layer), stride = padded(widths_[layer]);
      const float *kernel = parameters + stride;
      for (size_t column = 0; column < stride; column += kLane) {
        size_t begin = 0, end = in_width;
        while (begin < end && is_zero(kernel + begin * stride + column))
          ++begin;
        while (begin < end && is_zero(kernel + (end - 1) * stride + column))
          --end;
        used_inputs_[layer][column / kLane] = {static_cast<uint16_t>(begin), static_cast<uint16_t>(end)};
      }
      parameters = kernel + in_width * stride;
    }
  }

  static bool is_zero(const float *lane) {
    for (size_t k = 0; k < kLane; ++k)
      if (lane[k] != 0.0f)
        return false;
    return true;
  }

  // Finds each feature's row in the table: that of its rank, the number of boundaries that do not exceed the value.
  COMPILER_OPT_INLINE void find_rows(const int64_t *features, const float **rows) const {
    const int64_t *boundaries = boundaries_;
    const float *table = table_;
    const size_t width = padded(widths_[0]);
    for (size_t feature = 0; feature < num_features_; ++feature) {
      const size_t count = counts_[feature];
      const int64_t value = features[feature];
      // Branchless binary search: the number of iterations depends on the policy alone.
      const int64_t *base = boundaries;
      size_t left = count;
      while (left > 1) {
        const size_t half = left / 2;
        base += base[half - 1] <= value ? half : 0;
        left -= half;
      }
      const size_t rank = static_cast<size_t>(base - boundaries) + ((left == 1 && *base <= value) ? 1 : 0);
      rows[feature] = table + rank * width;
      boundaries += count;
      table += (count + 1) * width;
    }
  }

  // The loops over a lane have a constant length, so that compilers vectorise them and keep the sums in registers.
  COMPILER_OPT_INLINE void add_rows(const float *const *rows, float *out) const {
    const size_t width = padded(widths_[0]);
    for (size_t column = 0; column < width; column += kLane) {
      float sums[kLane];
      for (size_t k = 0; k < kLane; ++k)
        sums[k] = bias_[column + k];
      for (size_t feature = 0; feature < num_features_; ++feature) {
        const float *row = rows[feature] + column;
        for (size_t k = 0; k < kLane; ++k)
          sums[k] += row[k];
      }
      for (size_t k = 0; k < kLane; ++k)
        out[column + k] = sums[k];
    }
  }

  // 1 / (1 + exp(-x)), to 10 digits. Our own, because those of C libraries differ in their last bits. NaN is like -40.
  COMPILER_OPT_KERNEL static double sigmoid(double x) {
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
    x = x > -40.0 ? x : -40.0;
    x = x < 40.0 ? x : 40.0;
    // exp(-x) = 2^power * exp(rest), and |rest| <= ln(2) / 2.
    const int64_t power = static_cast<int64_t>(-x * 1.4426950408889634 + 1024.5) - 1024;
    const double rest = -x - static_cast<double>(power) * 0.6931471805599453;
    double sum = 1.0;
    for (int term = 10; term > 0; --term)
      sum = 1.0 + sum * rest / term;
    const uint64_t bits = static_cast<uint64_t>(power + 1023) << 52;
    double scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return 1.0 / (1.0 + sum * scale);
  }

  static double tanh(double x) { return 2.0 * sigmoid(2.0 * x) - 1.0; }

  // The LSTM's step, see policies/lstm.py: `gates` has the products of the features, and is overwritten.
  COMPILER_OPT_INLINE void remember(float *gates, State &state) const {
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
    const size_t units = lstm_units_, stride = padded(4 * units);
    for (size_t column = 0; column < stride; column += kLane) {
      float sums[kLane];
      for (size_t k = 0; k < kLane; ++k)
        sums[k] = gates[column + k];
      for (size_t unit = 0; unit < units; ++unit) {
        const float output = state.output[unit];
        const float *row = recurrent_ + unit * stride + column;
        for (size_t k = 0; k < kLane; ++k)
          sums[k] += output * row[k];
      }
      for (size_t k = 0; k < kLane; ++k)
        gates[column + k] = sums[k];
    }
    for (size_t unit = 0; unit < units; ++unit) {
      const double kept = sigmoid(double(gates[units + unit])) * double(state.cell[unit]);
      const double added = sigmoid(double(gates[unit])) * tanh(double(gates[2 * units + unit]));
      state.cell[unit] = static_cast<float>(kept + added);
      state.output[unit] =
          static_cast<float>(sigmoid(double(gates[3 * units + unit])) * tanh(double(state.cell[unit])));
    }
  }

  // Computes relu(in) * kernel + bias, without the ReLU for an LSTM's outputs; returns the address of the next layer's
  // parameters.
  COMPILER_OPT_INLINE const float *dense(const float *in, size_t layer, const float *parameters, float *out) const {
    const size_t in_width = inputs_of(layer), out_width = widths_[layer];
    const bool takes_all = layer == 1 && is_recurrent();
    const size_t stride = padded(out_width);
    const float *kernel = parameters + stride;
    // About half of the activations are zero after the ReLU; they are skipped.
    float activations[kMaxWidth];
    size_t offsets[kMaxWidth];
    size_t count = 0;
    UsedInputs chosen = {0, 0};  // of those; neighbouring columns use the same
    for (size_t column = 0; column < out_width; column += kLane) {
      const UsedInputs used = used_inputs_[layer][column / kLane];
      if (used.begin != chosen.begin || used.end != chosen.end) {
        chosen = used;
        count = 0;
        for (size_t i = used.begin; i < used.end; ++i) {
          activations[count] = in[i];
          offsets[count] = i * stride;
          count += in[i] > 0.0f || takes_all ? 1 : 0;
        }
      }
      if (out_width <= kNarrow)
        multiply_add<kNarrow>(activations, offsets, count, kernel + column, parameters + column, out + column);
      else
        multiply_add<kLane>(activations, offsets, count, kernel + column, parameters + column, out + column);
    }
    return kernel + in_width * stride;
  }

  // Evaluates `kColumns` columns of a layer, with their sums in registers.
  template <size_t kColumns>
  COMPILER_OPT_INLINE static void multiply_add(const float *activations, const size_t *offsets, size_t count,
                                               const float *kernel, const float *bias, float *out) {
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
    float sums[kColumns];
    for (size_t k = 0; k < kColumns; ++k)
      sums[k] = bias[k];
    for (size_t i = 0; i < count; ++i) {
      const float activation = activations[i];
      const float *row = kernel + offsets[i];
      for (size_t k = 0; k < kColumns; ++k)
        sums[k] += activation * row[k];
    }
    for (size_t k = 0; k < kColumns; ++k)
      out[k] = sums[k];
  }

  double margin_ = 0;
  size_t num_features_ = 0;
  size_t num_layers_ = 0;
  size_t lstm_units_ = 0;                 // 0 unless the network is recurrent
  uint32_t widths_[kMaxLayers] = {};      // outputs of each layer
  UsedInputs used_inputs_[kMaxLayers][kMaxWidth / kLane] = {};  // from the second layer on
  const uint32_t *counts_ = nullptr;      // number of boundaries per feature
  const int64_t *boundaries_ = nullptr;   // of all features, in ascending order for each
  const float *bias_ = nullptr;           // of the first layer
  const float *table_ = nullptr;          // products of the first layer: a row per feature and rank
  const float *recurrent_ = nullptr;      // of the LSTM: a row of gates per unit
  const float *layers_ = nullptr;         // of each further layer: bias, then kernel, row-major by input
  const char *names_ = "";
  const char *metadata_ = "{}";
};

// A stream of uniform random numbers, the same as `uniforms` in policies/policy.py (SplitMix64; Steele, Lea, Flood
// 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  // The next number in [0, 1): the upper 53 bits of an output.
  double uniform() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1.0p-53;
  }

 private:
  uint64_t state_;
};

}  // namespace compiler_opt

#undef COMPILER_OPT_KERNEL
#undef COMPILER_OPT_INLINE

#endif  // COMPILER_OPT_NATIVE_POLICY_NETWORK_H_
