#include "model/row_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>

#include "model/cpu_clones.h"

namespace stagecoach {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kLanes = 16;  // fixed by us, not by the CPU: sums have the same order everywhere

template <typename T>
STAGECOACH_INLINE T AddLanes(const T* lanes) {
  T half[kLanes / 2];
  for (int64_t l = 0; l < kLanes / 2; ++l) half[l] = lanes[l] + lanes[l + kLanes / 2];
  return ((half[0] + half[1]) + (half[2] + half[3])) + ((half[4] + half[5]) + (half[6] + half[7]));
}

// sum a*b
template <typename T>
STAGECOACH_INLINE T Dot(const T* a, const T* b, int64_t width) {
  T lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[j + l] * b[j + l];
  }
  for (int64_t l = 0; j < width; ++j, ++l) lanes[l] += a[j] * b[j];
  return AddLanes(lanes);
}

// sum a*b*c
template <typename T>
STAGECOACH_INLINE T Dot3(const T* a, const T* b, const T* c, int64_t width) {
  T lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[j + l] * b[j + l] * c[j + l];
  }
  for (int64_t l = 0; j < width; ++j, ++l) lanes[l] += a[j] * b[j] * c[j];
  return AddLanes(lanes);
}

// Rows x width. residual or gain may be null.
template <typename T>
struct ForwardRows {
  const T *z, *residual, *gain;
  T *out, *inverse;
  int64_t rows, width;
  double divisor, epsilon;
};

template <typename T>
STAGECOACH_INLINE void RunForward(const ForwardRows<T>& a) {
  for (int64_t i = 0; i < a.rows; ++i) {
    const T* z = a.z + i * a.width;
    T* out = a.out + i * a.width;
    const T inverse = T(1) / std::sqrt(Dot(z, z, a.width) / static_cast<T>(a.divisor) + static_cast<T>(a.epsilon));
    a.inverse[i] = inverse;
    if (a.gain != nullptr) {
      for (int64_t j = 0; j < a.width; ++j) out[j] = z[j] * inverse * a.gain[j];
    } else {
      const T* residual = a.residual + i * a.width;
      for (int64_t j = 0; j < a.width; ++j) out[j] = residual[j] + z[j] * inverse;
    }
  }
}

template <typename T>
struct BackwardRows {
  const T *z, *gain, *inverse, *upper;
  T *dz, *dgain;
  int64_t rows, width;
  double divisor;
};

// y = z/r: dz = g/r - z (g.z) / (r^3 divisor), with g = upper * gain.
template <typename T>
STAGECOACH_INLINE void RunBackward(const BackwardRows<T>& a) {
  for (int64_t i = 0; i < a.rows; ++i) {
    const T *z = a.z + i * a.width, *upper = a.upper + i * a.width;
    T* dz = a.dz + i * a.width;
    const T inverse = a.inverse[i];
    const T product = a.gain != nullptr ? Dot3(upper, z, a.gain, a.width) : Dot(upper, z, a.width);
    const T factor = product * inverse * inverse * inverse / static_cast<T>(a.divisor);
    if (a.gain != nullptr) {
      for (int64_t j = 0; j < a.width; ++j) dz[j] = upper[j] * a.gain[j] * inverse - z[j] * factor;
      for (int64_t j = 0; j < a.width; ++j) a.dgain[j] += upper[j] * (z[j] * inverse);
    } else {
      for (int64_t j = 0; j < a.width; ++j) dz[j] = upper[j] * inverse - z[j] * factor;
    }
  }
}

STAGECOACH_CPU_CLONES void Forward32(const ForwardRows<float>& a) { RunForward(a); }
STAGECOACH_CPU_CLONES void Backward32(const BackwardRows<float>& a) { RunBackward(a); }
void Run(const ForwardRows<float>& a) { Forward32(a); }
void Run(const ForwardRows<double>& a) { RunForward(a); }
void Run(const BackwardRows<float>& a) { Backward32(a); }
void Run(const BackwardRows<double>& a) { RunBackward(a); }

template <typename T>
const T* Pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

class RowNorm : public Function<RowNorm> {
 public:
  // Exactly one of residual and gain is defined.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& z_in,
                            const std::optional<at::Tensor>& residual_in, const std::optional<at::Tensor>& gain_in,
                            double divisor, double epsilon) {
    const at::Tensor z = z_in.contiguous();
    const at::Tensor residual = residual_in ? residual_in->contiguous() : at::Tensor();
    const at::Tensor gain = gain_in.value_or(at::Tensor());
    at::Tensor out, inverse;
    if (z.is_cpu()) {
      out = at::empty_like(z);
      inverse = at::empty({z.size(0)}, z.options());
      AT_DISPATCH_FLOATING_TYPES(z.scalar_type(), "RowNorm", [&] {
        Run(ForwardRows<scalar_t>{Pointer<scalar_t>(z), Pointer<scalar_t>(residual), Pointer<scalar_t>(gain),
                                  out.mutable_data_ptr<scalar_t>(), inverse.mutable_data_ptr<scalar_t>(), z.size(0),
                                  z.size(1), divisor, epsilon});
      });
    } else {
      inverse = at::rsqrt(at::square(z).sum(1).div_(divisor).add_(epsilon));
      out = z * inverse.unsqueeze(1);
      gain.defined() ? out.mul_(gain) : out.add_(residual);
    }
    context->save_for_backward({z, gain, inverse});
    context->saved_data["divisor"] = divisor;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list uppers) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &z = saved[0], &gain = saved[1], &inverse = saved[2];
    const at::Tensor upper = uppers[0].contiguous();
    const double divisor = context->saved_data["divisor"].toDouble();
    at::Tensor dz, dgain;
    if (gain.defined()) dgain = at::zeros_like(gain);
    if (z.is_cpu()) {
      dz = at::empty_like(z);
      AT_DISPATCH_FLOATING_TYPES(z.scalar_type(), "RowNormBackward", [&] {
        Run(BackwardRows<scalar_t>{Pointer<scalar_t>(z), Pointer<scalar_t>(gain), Pointer<scalar_t>(inverse),
                                   Pointer<scalar_t>(upper), dz.mutable_data_ptr<scalar_t>(),
                                   dgain.defined() ? dgain.mutable_data_ptr<scalar_t>() : nullptr, z.size(0), z.size(1),
                                   divisor});
      });
    } else {
      const at::Tensor scaled = gain.defined() ? upper * gain : upper;
      const at::Tensor factor = (scaled * z).sum(1).mul_(inverse.pow(3)).div_(divisor);
      dz = scaled * inverse.unsqueeze(1) - z * factor.unsqueeze(1);
      if (gain.defined()) dgain = (upper * (z * inverse.unsqueeze(1))).sum(0);
    }
    return {dz, gain.defined() ? at::Tensor() : upper, dgain, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& gain, double epsilon) {
  return RowNorm::apply(x, std::nullopt, std::optional<at::Tensor>(gain), static_cast<double>(x.size(1)), epsilon);
}

at::Tensor AddRowNorm(const at::Tensor& residual, const at::Tensor& z, double divisor, double epsilon) {
  return RowNorm::apply(z, std::optional<at::Tensor>(residual), std::nullopt, divisor, epsilon);
}

}  // namespace stagecoach
