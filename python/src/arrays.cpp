#include "arrays.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include "dlpack.hpp"
#include "python_objects.hpp"

namespace attend::python {
namespace {

using kind = element_type::kind;

/// The buffer protocol's letters for a native element type; anything else is `other`.
element_type element_of_format(const char* format, std::int64_t bytes) {
  if (!format) return {kind::unsigned_integer, 1};
  if (*format == '@' || *format == '=' || *format == '<') ++format;  // '<' is native: the library is for little-endian CPUs
  if (format[0] == '\0' || format[1] != '\0') return {kind::other, bytes};
  if (*format == '?') return {kind::boolean, bytes};
  if (std::strchr("bhilqn", *format)) return {kind::signed_integer, bytes};
  if (std::strchr("BHILQN", *format)) return {kind::unsigned_integer, bytes};
  if (std::strchr("efd", *format)) return {kind::floating, bytes};
  return {kind::other, bytes};
}

element_type element_of(const dlpack::data_type& type) {
  const std::int64_t bytes = type.bits / 8;
  if (type.lanes != 1 || type.bits % 8 != 0 || bytes == 0) return {kind::other, 1};
  switch (type.code) {
    case dlpack::code_int: return {std::has_single_bit(type.bits) ? kind::signed_integer : kind::other, bytes};
    case dlpack::code_uint: return {std::has_single_bit(type.bits) ? kind::unsigned_integer : kind::other, bytes};
    case dlpack::code_float: return {kind::floating, bytes};
    case dlpack::code_bfloat: return {kind::brain_floating, bytes};
    case dlpack::code_bool: return {bytes == 1 ? kind::boolean : kind::other, bytes};
    default: return {kind::other, bytes};
  }
}

std::string type_text(const dlpack::data_type& type) {
  static constexpr const char* names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  std::string text = type.code < std::size(names) ? names[type.code] : "code " + std::to_string(type.code) + ", bits ";
  text += std::to_string(type.bits);
  return type.lanes == 1 ? text : text + " in " + std::to_string(type.lanes) + " lanes";
}

/// The producer's own exchange functions of version 1, where its type has them.
const dlpack::exchange_api* exchange_api_of(nb::handle object) {
  PyObject* found = PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())), known().exchange_api.ptr());
  if (!found) PyErr_Clear();
  nb::object capsule = nb::steal(found);
  if (!found || !PyCapsule_IsValid(found, "dlpack_exchange_api")) return nullptr;
  const auto* api = static_cast<const dlpack::exchange_api*>(PyCapsule_GetPointer(found, "dlpack_exchange_api"));
  while (api && api->major > dlpack::major_version) api = api->previous;
  return api && api->major == dlpack::major_version && api->export_managed ? api : nullptr;
}

template <class T>
std::int64_t widen(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<std::int64_t>(value);
}

std::int64_t load_integer(const element_type& element, const char* at) {
  const bool is_signed = element.what == kind::signed_integer;
  switch (element.bytes) {
    case 1: return is_signed ? widen<std::int8_t>(at) : widen<std::uint8_t>(at);
    case 2: return is_signed ? widen<std::int16_t>(at) : widen<std::uint16_t>(at);
    case 4: return is_signed ? widen<std::int32_t>(at) : widen<std::uint32_t>(at);
    default: return widen<std::int64_t>(at);
  }
}

}  // namespace

bool borrowed_array::is_array(nb::handle object) { return is_numpy(object) || nb::hasattr(object, "__dlpack__"); }

void borrowed_array::require_array(nb::handle object, std::string_view name) {
  if (is_array(object)) return;
  throw argument_error(std::string(name), "an array (of NumPy, or any with __dlpack__)", type_text(object),
                       argument_error::kind::type);
}

borrowed_array::borrowed_array(nb::handle object, std::string_view name) : object_(object), name_(name) {
  try {
    if (is_numpy(object)) {
      read_buffer();
    } else {
      require_array(object, name);
      read_dlpack();
    }
    check_extent();
  } catch (...) {
    release();  // a constructor that throws has no destructor
    throw;
  }
}

borrowed_array::borrowed_array(borrowed_array&& other) noexcept
    : object_(other.object_),
      name_(other.name_),
      data_(other.data_),
      element_(other.element_),
      shape_(other.shape_),
      strides_(other.strides_),
      writable_(other.writable_),
      buffer_(std::exchange(other.buffer_, std::nullopt)),
      managed_(std::exchange(other.managed_, nullptr)),
      deleter_(other.deleter_) {}

borrowed_array::~borrowed_array() { release(); }

void borrowed_array::release() noexcept {
  if (buffer_) PyBuffer_Release(&*buffer_);
  buffer_.reset();
  if (managed_ && deleter_) deleter_(managed_);
  managed_ = nullptr;
}

void borrowed_array::read_buffer() {
  if (Py_TYPE(object_.ptr()) != reinterpret_cast<PyTypeObject*>(known().ndarray.ptr()) &&
      is_instance_of(object_, known().masked_array)) {
    throw argument_error(std::string(name_), "an array without a mask of its own", "numpy.ma.MaskedArray",
                         argument_error::kind::type);
  }
  Py_buffer buffer;
  if (PyObject_GetBuffer(object_.ptr(), &buffer, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();  // NumPy has no format for these elements
    if (is_bfloat16(object_.attr("dtype"))) {
      const nb::object bits = object_.attr("view")("uint16");  // the buffer keeps it
      if (PyObject_GetBuffer(bits.ptr(), &buffer, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
      take_buffer(buffer);
      element_.what = kind::brain_floating;
      return;
    }
    nb::tuple sizes = nb::borrow<nb::tuple>(object_.attr("shape"));
    if (sizes.size() <= static_cast<std::size_t>(max_rank)) {
      for (nb::handle size : sizes) shape_.push_back(nb::cast<std::int64_t>(size));
      strides_ = shape_;
    }
    return;  // of datetime64, say, the shape is all there is to know
  }
  take_buffer(buffer);
}

void borrowed_array::take_buffer(const Py_buffer& buffer) {
  buffer_ = buffer;
  data_ = buffer.buf;
  element_ = element_of_format(buffer.format, buffer.itemsize);
  writable_ = !buffer.readonly;
  if (buffer.ndim > max_rank) {
    throw argument_error(std::string(name_), "at most " + std::to_string(max_rank) + " axes", std::to_string(buffer.ndim));
  }
  for (int axis = 0; axis < buffer.ndim; ++axis) {
    shape_.push_back(buffer.shape[axis]);
    std::int64_t step = buffer.strides[axis];
    if (element_.what != kind::other && step % element_.bytes != 0) {
      if (buffer.shape[axis] > 1 && buffer.len > 0) {
        throw argument_error(std::string(name_), "strides that are whole elements",
                             std::to_string(step) + " bytes between elements of " + std::to_string(element_.bytes));
      }
      step = 0;  // never taken
    }
    strides_.push_back(step / element_.bytes);
  }
}

void borrowed_array::read_dlpack() {
  if (is_torch(object_) && nb::cast<bool>(object_.attr("requires_grad"))) {
    throw argument_error(std::string(name_), "a tensor that requires no gradient",
                         "one that does; attend.torch is for those, or call detach()");
  }
  // DLPack shows the memory, not that a view of it is to be read with the other sign.
  if (is_torch(object_) && nb::cast<bool>(object_.attr("is_neg")())) {
    throw argument_error(std::string(name_), "a tensor whose memory holds its values",
                         "a negated view (is_neg()); call resolve_neg()");
  }
  if (const dlpack::exchange_api* direct = exchange_api_of(object_)) {
    dlpack::managed_tensor_versioned* managed = nullptr;
    if (direct->export_managed(object_.ptr(), &managed) != 0) refuse_export(take_python_error());
    return take(managed);
  }
  nb::object capsule;
  try {
    capsule = object_.attr("__dlpack__")(nb::arg("max_version") = known().max_version);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) refuse_export(text_of(error.value()));
  }
  if (!capsule.is_valid()) {  // a producer from before DLPack 1.0 knows no max_version
    PyObject* made = PyObject_CallMethod(object_.ptr(), "__dlpack__", nullptr);
    if (!made) refuse_export(take_python_error());
    capsule = nb::steal(made);
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    take_capsule<dlpack::managed_tensor_versioned>(capsule, "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    take_capsule<dlpack::managed_tensor>(capsule, "used_dltensor");
  } else {
    const char* label = PyCapsule_CheckExact(capsule.ptr()) ? PyCapsule_GetName(capsule.ptr()) : nullptr;
    throw argument_error(std::string(name_), "a DLPack capsule that nobody has used", label ? label : type_text(capsule));
  }
}

void borrowed_array::refuse_export(const std::string& reason) const {
  // Of a reason of many lines, the first says it.
  throw argument_error(std::string(name_), "an array whose memory can be read in place",
                       type_text(object_) + " (" + reason.substr(0, reason.find('\n')) + ")");
}

template <class Managed>
void borrowed_array::take_capsule(nb::handle capsule, const char* used_name) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr())));
  if (!managed || PyCapsule_SetName(capsule.ptr(), used_name) != 0) throw nb::python_error();
  take(managed);
}

/// From here on the tensor is ours, and its deleter is called once, whatever follows.
template <class Managed>
void borrowed_array::take(Managed* managed) {
  managed_ = managed;
  deleter_ = [](void* taken) {
    auto* mine = static_cast<Managed*>(taken);
    if (mine->deleter) mine->deleter(mine);
  };
  if constexpr (requires { managed->flags; }) {
    if (managed->major != dlpack::major_version) {
      throw argument_error(std::string(name_), "DLPack of version 1", "version " + std::to_string(managed->major));
    }
    writable_ = (managed->flags & dlpack::flag_read_only) == 0;
  } else {
    // Without a version nothing says whether writing is allowed, and JAX's arrays are immutable.
    writable_ = !nb::hasattr(object_, "__array_namespace__");
  }
  read_content(&managed->content);
}

void borrowed_array::read_content(const void* content) {
  const auto& tensor = *static_cast<const dlpack::tensor*>(content);
  const std::string name(name_);
  if (tensor.device_type != dlpack::cpu && tensor.device_type != dlpack::cuda_host && tensor.device_type != dlpack::rocm_host) {
    throw argument_error(name, "an array in the CPU's memory", "one on DLPack device " + std::to_string(tensor.device_type));
  }
  if (tensor.ndim < 0 || tensor.ndim > max_rank) {
    throw argument_error(name, "at most " + std::to_string(max_rank) + " axes", std::to_string(tensor.ndim));
  }
  if (tensor.ndim > 0 && !tensor.shape) throw argument_error(name, "a shape", "a DLPack tensor without one");
  element_ = element_of(tensor.dtype);
  if (tensor.dtype.lanes != 1 || tensor.dtype.bits % 8 != 0) {
    throw argument_error(name, "elements of whole bytes in one lane", type_text(tensor.dtype), argument_error::kind::type);
  }
  for (int axis = 0; axis < tensor.ndim; ++axis) shape_.push_back(tensor.shape[axis]);
  check_extent();
  if (tensor.strides) {
    for (int axis = 0; axis < tensor.ndim; ++axis) strides_.push_back(tensor.strides[axis]);
  } else {
    strides_ = tensor_view<const char>(nullptr, shape_).strides;
  }
  if (!tensor.data && shape_.count() > 0) throw argument_error(name, "data", "a DLPack tensor without any");
  if (tensor.data) data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
}

/// Sizes and their product. Addresses need no alignment: tensors of a mapped file often have none.
void borrowed_array::check_extent() const {
  std::int64_t bytes = element_.bytes;
  bool empty = false;
  for (int axis = 0; axis < shape_.rank(); ++axis) {
    if (shape_[axis] < 0) throw argument_error(std::string(name_), "sizes of at least 0", shape_.to_string());
    empty = empty || shape_[axis] == 0;
  }
  for (int axis = 0; axis < shape_.rank() && !empty; ++axis) {
    if (__builtin_mul_overflow(bytes, shape_[axis], &bytes)) {
      throw argument_error(std::string(name_), "a size that fits 63 bits", "shape " + shape_.to_string());
    }
  }
}

dtype borrowed_array::known_type() const noexcept {
  if (element_.what == kind::boolean && element_.bytes == 1) return dtype::boolean;
  if (element_.what == kind::brain_floating && element_.bytes == 2) return dtype::bf16;
  if (element_.what == kind::floating && element_.bytes == 2) return dtype::f16;
  if (element_.what == kind::floating && element_.bytes == 4) return dtype::f32;
  if (element_.what == kind::floating && element_.bytes == 8) return dtype::f64;
  return dtype::none;
}

array_view borrowed_array::view() const { return {data_, known_type(), shape_, strides_}; }

mutable_array_view borrowed_array::mutable_view() const { return {data_, known_type(), shape_, strides_}; }

std::string borrowed_array::dtype_text() const {
  if (nb::hasattr(object_, "dtype")) {
    nb::object type = object_.attr("dtype");
    std::string text = text_of(type);
    return text.starts_with("torch.") ? text.substr(6) : text;
  }
  static constexpr const char* names[] = {"other elements", "bool", "int", "uint", "float", "bfloat"};
  std::string text = names[static_cast<int>(element_.what)];
  if (element_.what == kind::other || element_.what == kind::boolean) return text;
  return text + std::to_string(8 * element_.bytes);
}

void borrowed_array::require(bool right, const std::string& expected) const {
  if (!right) throw argument_error(std::string(name_), expected, dtype_text(), argument_error::kind::type);
}

void borrowed_array::require_floating() const {
  const dtype type = known_type();
  require(type == dtype::f32 || type == dtype::f64 || type == dtype::f16 || type == dtype::bf16, float_types);
}

void borrowed_array::require_boolean() const { require(known_type() == dtype::boolean, "booleans (true = attend)"); }

void borrowed_array::require_writable() const {
  if (!writable_) throw argument_error(std::string(name_), "a writable array", "a read-only one");
}

tensor<std::int64_t> borrowed_array::integers() const {
  require(element_.is_integer(), "integers");
  tensor<std::int64_t> values(shape_);
  extents at = shape_;
  for (int axis = 0; axis < at.rank(); ++axis) at[axis] = 0;
  const bool may_exceed = element_.what == kind::unsigned_integer && element_.bytes == 8;
  for (std::int64_t& value : values) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < at.rank(); ++axis) offset += at[axis] * strides_[axis];
    value = load_integer(element_, static_cast<const char*>(data_) + offset * element_.bytes);
    if (may_exceed && value < 0) {
      throw argument_error(std::string(name_), "integers of at most 63 bits",
                           std::to_string(static_cast<std::uint64_t>(value)));
    }
    for (int axis = at.rank() - 1; axis >= 0 && ++at[axis] == shape_[axis]; --axis) at[axis] = 0;
  }
  return values;
}

integer_array::integer_array(borrowed_array&& array)
    : array_(std::move(array)), in_place_(array_.element().what == kind::signed_integer && array_.element().bytes == 8) {
  if (!in_place_) copy_ = array_.integers();
}

integer_array::integer_array(nb::handle object, std::string_view name) : integer_array(borrowed_array(object, name)) {}

integer_array integer_array::boundaries(nb::handle object, std::string_view name) {
  borrowed_array array(object, name);
  const element_type& element = array.element();
  array.require(element.what == kind::signed_integer && (element.bytes == 4 || element.bytes == 8), "int32 or int64");
  return integer_array(std::move(array));
}

}  // namespace attend::python
