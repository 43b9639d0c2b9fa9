// DLPack's memory layout, versions 0.x and 1.x: what a capsule from `__dlpack__` points at.
// https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>

namespace attend::python::dlpack {

/// Devices whose memory this process can read.
enum device_type : std::int32_t { cpu = 1, cuda_host = 3, rocm_host = 11 };

enum type_code : std::uint8_t { code_int = 0, code_uint = 1, code_float = 2, code_bfloat = 4, code_complex = 5, code_bool = 6 };

struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  data_type dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null means compact and row-major
  std::uint64_t byte_offset;
};

/// "dltensor"
struct managed_tensor {
  tensor content;
  void* context;
  void (*deleter)(managed_tensor* self);
};

inline constexpr std::uint32_t major_version = 1;
inline constexpr std::uint32_t minor_version = 1;
inline constexpr std::uint64_t flag_read_only = 1;

/// "dltensor_versioned": version and deleter stay where they are in every version to come.
struct managed_tensor_versioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(managed_tensor_versioned* self);
  std::uint64_t flags;
  tensor content;
};

/// "dlpack_exchange_api", DLPack 1.3: the same export as `__dlpack__`, without Python in between. A producer's type holds it as
/// `__dlpack_c_exchange_api__`; later major versions lead to earlier ones through `previous`.
struct exchange_api {
  std::uint32_t major;
  std::uint32_t minor;
  const exchange_api* previous;
  int (*allocate)(tensor* prototype, managed_tensor_versioned** out, void* context,
                  void (*fail)(void*, const char*, const char*));
  int (*export_managed)(void* py_object, managed_tensor_versioned** out);  ///< 0, or -1 with Python's error set
  int (*import_managed)(managed_tensor_versioned* managed, void** py_object);
  int (*view)(void* py_object, tensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace attend::python::dlpack
