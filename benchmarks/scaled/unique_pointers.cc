#include <memory>
struct B {
  virtual ~B();
  int x;
};
void use(std::unique_ptr<B>);
void f() {
  use(std::make_unique<B>()); // @
}
