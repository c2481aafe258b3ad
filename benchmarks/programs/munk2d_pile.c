// Boxes and balls that fall into a trough and pile up.
#include <stdio.h>

typedef double cpFloat;
typedef struct {
  cpFloat x, y;
} cpVect;
typedef struct cpSpace cpSpace;
typedef struct cpBody cpBody;
typedef struct cpShape cpShape;
cpSpace *cpSpaceNew(void);
void cpSpaceSetGravity(cpSpace *space, cpVect gravity);
void cpSpaceSetIterations(cpSpace *space, int iterations);
cpBody *cpSpaceGetStaticBody(const cpSpace *space);
cpBody *cpSpaceAddBody(cpSpace *space, cpBody *body);
cpShape *cpSpaceAddShape(cpSpace *space, cpShape *shape);
void cpSpaceStep(cpSpace *space, cpFloat seconds);
cpBody *cpBodyNew(cpFloat mass, cpFloat moment);
void cpBodySetPosition(cpBody *body, cpVect position);
cpVect cpBodyGetPosition(const cpBody *body);
cpFloat cpMomentForBox(cpFloat mass, cpFloat width, cpFloat height);
cpFloat cpMomentForCircle(cpFloat mass, cpFloat inner, cpFloat outer, cpVect offset);
cpShape *cpBoxShapeNew(cpBody *body, cpFloat width, cpFloat height, cpFloat radius);
cpShape *cpCircleShapeNew(cpBody *body, cpFloat radius, cpVect offset);
cpShape *cpSegmentShapeNew(cpBody *body, cpVect from, cpVect to, cpFloat radius);
void cpShapeSetFriction(cpShape *shape, cpFloat friction);

int main(void) {
  enum { kBodies = 150 };
  const cpVect none = {0, 0}, gravity = {0, -100};
  const cpVect trough[] = {{-60, 200}, {-50, 0}, {50, 0}, {60, 200}};
  cpBody *bodies[kBodies];
  cpSpace *space = cpSpaceNew();
  cpSpaceSetGravity(space, gravity);
  cpSpaceSetIterations(space, 10);
  for (int i = 0; i < 3; ++i) {
    cpShape *wall = cpSpaceAddShape(space, cpSegmentShapeNew(cpSpaceGetStaticBody(space), trough[i], trough[i + 1], 1));
    cpShapeSetFriction(wall, 0.7);
  }
  for (int i = 0; i < kBodies; ++i) {
    const cpVect position = {-40 + i % 9 * 10 + i % 5 * 0.3, 20 + i / 9 * 12};
    const int is_box = i % 3 != 0;
    bodies[i] = cpSpaceAddBody(space, cpBodyNew(1, is_box ? cpMomentForBox(1, 7, 5) : cpMomentForCircle(1, 0, 3, none)));
    cpBodySetPosition(bodies[i], position);
    cpShape *shape = is_box ? cpBoxShapeNew(bodies[i], 7, 5, 0.2) : cpCircleShapeNew(bodies[i], 3, none);
    cpShapeSetFriction(cpSpaceAddShape(space, shape), 0.5);
  }
  for (int step = 0; step < 1000; ++step) cpSpaceStep(space, 1.0 / 60);
  cpFloat x = 0, y = 0;
  for (int i = 0; i < kBodies; ++i) {
    x += cpBodyGetPosition(bodies[i]).x;
    y += cpBodyGetPosition(bodies[i]).y;
  }
  printf("%.6f %.6f\n", x, y);
  return 0;
}
