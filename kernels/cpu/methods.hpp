// The demosaic methods by their numbers.
#pragma once
#include "adaptive.hpp"
#include "bilinear.hpp"
#include "mosaic.hpp"

namespace {

template <class Code> struct MethodOf {
  typedef Code Type;
};

// Calls `use` with the code of a method, as a type. FINDS_SWITCH: whether ADR finds its switch itself.
template <bool FINDS_SWITCH, class Use> void with_method(int method, Use use) {
  if (method == ADAPTIVE)
    use(MethodOf<Adaptive<FINDS_SWITCH>>());
  else if (method == GRADIENT)
    use(MethodOf<Gradient>());
  else
    use(MethodOf<Bilinear>());
}

} // namespace
