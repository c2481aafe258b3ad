#include <memory>
struct B {
  virtual ~B();
  int x;
};
void use(std::shared_ptr<B>);
void f() {
  use(std::make_shared<B>()); // @
}
