// Finds the fastest motions of robot joints by each kind of interface, and synchronizes them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>

namespace ruckig {
struct BrakeProfile {
  double duration, t[2], j[2], a[2], v[2], p[2];
  void get_position_brake_trajectory(double v0, double a0, double v_max, double v_min, double a_max, double a_min,
                                     double j_max);
  void get_second_order_position_brake_trajectory(double v0, double v_max, double v_min, double a_max, double a_min);
  void get_velocity_brake_trajectory(double a0, double a_max, double a_min, double j_max);
  void get_second_order_velocity_brake_trajectory();
};
struct Profile {
  double t[7], t_sum[7], j[7], a[8], v[8], p[8];
  BrakeProfile brake, accel;
  double pf, vf, af;
  int limits, direction, signs;
};
struct Block {
  struct Interval {
    double left, right;
    Profile profile;
  };
  Profile fastest;
  double t_min;
  std::optional<Interval> a, b;
};
static_assert(sizeof(Profile) == 576 && sizeof(Block) == 1784);

// A class of the library: its first step finds blocks, its second a profile that takes a given time.
#define STEP(name, doubles, ...)                \
  struct name {                                 \
    double members[doubles];                    \
    explicit name(__VA_ARGS__);                 \
    bool get_profile(const Profile &, Block &); \
    bool get_profile(Profile &);                \
  };
using D = double;
STEP(PositionThirdOrderStep1, 451, D p0, D v0, D a0, D pf, D vf, D af, D v_max, D v_min, D a_max, D a_min, D j_max)
STEP(PositionThirdOrderStep2, 33, D tf, D p0, D v0, D a0, D pf, D vf, D af, D v_max, D v_min, D a_max, D a_min, D j_max)
STEP(PositionSecondOrderStep1, 223, D p0, D v0, D pf, D vf, D v_max, D v_min, D a_max, D a_min)
STEP(PositionSecondOrderStep2, 9, D tf, D p0, D v0, D pf, D vf, D v_max, D v_min, D a_max, D a_min)
STEP(PositionFirstOrderStep1, 3, D p0, D pf, D v_max, D v_min)
STEP(PositionFirstOrderStep2, 4, D tf, D p0, D pf, D v_max, D v_min)
STEP(VelocityThirdOrderStep1, 222, D v0, D a0, D vf, D af, D a_max, D a_min, D j_max)
STEP(VelocityThirdOrderStep2, 8, D tf, D v0, D a0, D vf, D af, D a_max, D a_min, D j_max)
STEP(VelocitySecondOrderStep1, 3, D v0, D vf, D a_max, D a_min)
STEP(VelocitySecondOrderStep2, 4, D tf, D v0, D vf, D a_max, D a_min)
}  // namespace ruckig

using namespace ruckig;

static unsigned state = 1;

static double draw(double low, double high) {
  state = state * 1103515245 + 12345;
  return low + (high - low) * (state >> 12) / (1 << 20);
}

enum Kind { kPosition3, kVelocity3, kPosition2, kVelocity2, kPosition1, kKinds };

struct Joint {
  double v_max, v_min, a_max, a_min, j_max;
  Profile profile = {};
  Block block = {};

  explicit Joint(Kind kind) {
    v_max = draw(0.5, 3), v_min = -draw(0.5, 3), a_max = draw(0.5, 4), a_min = -draw(0.5, 4), j_max = draw(1, 10);
    const bool rests = draw(0, 1) < 0.4, first = kind == kPosition1, third = kind == kPosition3 || kind == kVelocity3;
    Profile &p = profile;
    p.p[0] = draw(-5, 5), p.pf = draw(-5, 5);
    p.v[0] = first ? 0 : draw(1.2 * v_min, 1.2 * v_max), p.vf = first || rests ? 0 : draw(0.6 * v_min, 0.6 * v_max);
    p.a[0] = third ? draw(1.2 * a_min, 1.2 * a_max) : 0;
    const double a_largest = std::sqrt(2 * j_max * std::min(v_max - p.vf, p.vf - v_min));
    p.af = third && !rests ? draw(std::max(a_min, -a_largest), std::min(a_max, a_largest)) : 0;
  }

  // Moves the start to where the joint is within its limits.
  void brake(Kind kind) {
    double &p = profile.p[0], &v = profile.v[0], &a = profile.a[0];
    BrakeProfile &b = profile.brake;
    if (kind == kPosition3) b.get_position_brake_trajectory(v, a, v_max, v_min, a_max, a_min, j_max);
    if (kind == kVelocity3) b.get_velocity_brake_trajectory(a, a_max, a_min, j_max);
    if (kind == kPosition2) b.get_second_order_position_brake_trajectory(v, v_max, v_min, a_max, a_min);
    if (kind == kVelocity2) b.get_second_order_velocity_brake_trajectory();
    for (int i = 0; i < 2 && b.t[i] > 0; ++i) {
      const double t = b.t[i], start = kind == kPosition2 ? b.a[i] : a, j = b.j[i];
      p += t * (v + t * (start / 2 + t * j / 6));
      v += t * (start + t * j / 2);
      a += t * j;
      b.duration += t;
    }
  }

  bool fastest(Kind kind) {
    Profile &p = profile;
    const double p0 = p.p[0], v0 = p.v[0], a0 = p.a[0];
    switch (kind) {
      case kPosition3:
        return PositionThirdOrderStep1(p0, v0, a0, p.pf, p.vf, p.af, v_max, v_min, a_max, a_min, j_max)
            .get_profile(p, block);
      case kVelocity3: return VelocityThirdOrderStep1(v0, a0, p.vf, p.af, a_max, a_min, j_max).get_profile(p, block);
      case kPosition2:
        return PositionSecondOrderStep1(p0, v0, p.pf, p.vf, v_max, v_min, a_max, a_min).get_profile(p, block);
      case kVelocity2: return VelocitySecondOrderStep1(v0, p.vf, a_max, a_min).get_profile(p, block);
      default: return PositionFirstOrderStep1(p0, p.pf, v_max, v_min).get_profile(p, block);
    }
  }

  bool slower(Kind kind, double duration) {
    Profile &p = profile;
    const double p0 = p.p[0], v0 = p.v[0], a0 = p.a[0], t = duration - p.brake.duration;
    switch (kind) {
      case kPosition3:
        return PositionThirdOrderStep2(t, p0, v0, a0, p.pf, p.vf, p.af, v_max, v_min, a_max, a_min, j_max).get_profile(p);
      case kVelocity3: return VelocityThirdOrderStep2(t, v0, a0, p.vf, p.af, a_max, a_min, j_max).get_profile(p);
      case kPosition2:
        return PositionSecondOrderStep2(t, p0, v0, p.pf, p.vf, v_max, v_min, a_max, a_min).get_profile(p);
      case kVelocity2: return VelocitySecondOrderStep2(t, v0, p.vf, a_max, a_min).get_profile(p);
      default: return PositionFirstOrderStep2(t, p0, p.pf, v_max, v_min).get_profile(p);
    }
  }

  bool is_blocked(double t) const {
    return t < block.t_min || (block.a && block.a->left < t && t < block.a->right) ||
           (block.b && block.b->left < t && t < block.b->right);
  }
};

int main() {
  for (int i = 0; i < kKinds; ++i) {
    const Kind kind = static_cast<Kind>(i);
    const int count = kind == kPosition3 ? 6000 : 2000;
    int found = 0, synchronized = 0, kinds[8] = {};
    double durations = 0, peaks = 0;
    for (int motion = 0; motion < count; ++motion) {
      Joint joints[] = {Joint(kind), Joint(kind), Joint(kind)};
      double longest = 0;
      for (Joint &joint : joints) {
        joint.brake(kind);
        if (!joint.fastest(kind)) continue;
        ++found;
        ++kinds[joint.block.fastest.limits];
        longest = std::max(longest, joint.block.t_min);
      }
      longest *= 1.05;
      for (Joint &joint : joints) {
        if (joint.is_blocked(longest) || !joint.slower(kind, longest)) continue;
        ++synchronized;
        for (const double v : joint.profile.v) peaks = std::max(peaks, v);
        durations += joint.profile.t[1] + joint.profile.t[3];
      }
      durations += longest;
    }
    std::printf("%d: %d %d %.9f %.9f;", i, found, synchronized, durations, peaks);
    for (const int each : kinds) std::printf(" %d", each);
    std::printf("\n");
  }
  return 0;
}
