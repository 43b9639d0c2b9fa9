#include "results.hpp"

#include <utility>

#include "python_objects.hpp"

namespace attend::python {
namespace {

nb::tuple as_tuple(const extents& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  if (!tuple.is_valid()) throw nb::python_error();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    PyObject* size = PyLong_FromLongLong(shape[axis]);
    if (!size) throw nb::python_error();
    PyTuple_SET_ITEM(tuple.ptr(), axis, size);
  }
  return nb::borrow<nb::tuple>(tuple);
}

}  // namespace

result_factory::result_factory(nb::handle like)
    : like_(like),
      kind_(is_numpy(like)   ? kind::numpy
            : is_torch(like) ? kind::torch
                             : kind::foreign) {}

result_factory::fresh result_factory::make(const extents& shape, dtype type) const {
  if (kind_ == kind::torch) {  // the tensor's own device, whatever torch's default is; lse and weights have its dtype, too
    nb::object made = like_.attr("new_empty")(as_tuple(shape));
    void* data = PyLong_AsVoidPtr(nb::object(made.attr("data_ptr")()).ptr());
    if (!data && PyErr_Occurred()) throw nb::python_error();
    return {std::move(made), {data, type, shape, tensor_view<const char>(nullptr, shape).strides}};
  }
  nb::object made = known().empty(as_tuple(shape), type == dtype::f64 ? known().float64 : known().float32);
  mutable_array_view view = borrowed_array(made, "out").mutable_view();  // `made` keeps the memory
  return {std::move(made), view};
}

nb::object result_factory::finish(nb::object array) const {
  if (kind_ != kind::foreign || !nb::hasattr(like_, "__array_namespace__")) return array;
  return like_.attr("__array_namespace__")().attr("from_dlpack")(array);
}

}  // namespace attend::python
