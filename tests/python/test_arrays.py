"""Arrays of every kind are read and written in place: NumPy's, PyTorch's, and whatever has `__dlpack__`."""

import array
import ctypes
import gc

import numpy as np
import pytest

import attend
from reference import DTYPES, HALVES, assert_close, attention, problem, tensor_of


class Producer:
    """A library of its own as far as attend can tell: DLPack capsules made by hand, deleters counted."""

    def __init__(self, x, *, code=2, bits=None, lanes=1, device=1, shape="given", strides="given", byte_offset=0, version=None,
                 flags=0, ndim=None, name=None, accepts_version=True):
        class Tensor(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]

        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        class Managed(ctypes.Structure):
            _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", deleter)]

        class Versioned(ctypes.Structure):
            _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", deleter),
                        ("flags", ctypes.c_uint64), ("tensor", Tensor)]

        def count(_):
            self.deleted += 1

        numbers = lambda values: (ctypes.c_int64 * max(len(values), 1))(*values)
        self.array, self.deleted, self.accepts_version, self.keep = x, 0, accepts_version, deleter(count)
        self.shape = numbers(x.shape if shape == "given" else shape or ())
        self.strides = numbers([step // x.itemsize for step in x.strides])
        self.managed = Managed() if version is None else Versioned()
        self.managed.deleter = self.keep
        if version is not None:
            (self.managed.major, self.managed.minor), self.managed.flags = version, flags
        tensor = self.managed.tensor
        tensor.data, tensor.byte_offset = x.__array_interface__["data"][0] - byte_offset, byte_offset
        tensor.device, tensor.code, tensor.bits, tensor.lanes = device, code, 8 * x.itemsize if bits is None else bits, lanes
        tensor.ndim = x.ndim if ndim is None else ndim
        tensor.shape = None if shape is None else ctypes.addressof(self.shape)
        tensor.strides = None if strides is None else ctypes.addressof(self.strides)
        self.name = name or (b"dltensor" if version is None else b"dltensor_versioned")
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        self.capsule = new(ctypes.addressof(self.managed), self.name, None)

    def __dlpack__(self, **options):
        if options and not self.accepts_version:
            raise TypeError("__dlpack__() takes no arguments")
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0

    def settled(self):
        """A capsule that was taken has been released once, one that was left has not been touched."""
        gc.collect()
        valid = ctypes.pythonapi.PyCapsule_IsValid
        valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
        return self.deleted == (not valid(self.capsule, self.name))


READABLE = {
    "strides": lambda k: Producer(k),
    "no_strides": lambda k: Producer(k, strides=None),
    "byte_offset": lambda k: Producer(k, byte_offset=8),
    "version_1": lambda k: Producer(k, version=(1, 0)),
    "version_1_9": lambda k: Producer(k, version=(1, 9)),
    "read_only": lambda k: Producer(k, version=(1, 1), flags=1),
    "before_versions": lambda k: Producer(k, accepts_version=False),
    "pinned": lambda k: Producer(k, device=3),
    "reversed": lambda k: Producer(k[:, :, ::-1].copy()[:, :, ::-1]),
}

UNREADABLE = {
    "on_a_gpu": (dict(device=2), ValueError, "k: .*device 2"),
    "lanes": (dict(lanes=2), TypeError, "k: .*lanes"),
    "four_bits": (dict(bits=4), TypeError, "k: .*float4"),
    "float8": (dict(bits=8), TypeError, "k: .*float8"),
    "complex": (dict(code=5), TypeError, "k: "),
    "bfloat32": (dict(code=4), TypeError, "k: .*bfloat32"),
    "unknown_code": (dict(code=99), TypeError, "k: "),
    "version_2": (dict(version=(2, 0)), ValueError, "k: .*version 2"),
    "size_overflows": (dict(shape=(2**62, 2**62, 5, 4)), ValueError, "k: "),
    "negative_size": (dict(shape=(-1, 2, 7, 8)), ValueError, "k: "),
    "no_shape": (dict(shape=None), ValueError, "k: "),
    "too_many_axes": (dict(shape=(1,) * 9, ndim=9, strides=None), ValueError, "k: .*9"),
    "negative_rank": (dict(ndim=-1), ValueError, "k: "),
    "used": (dict(name=b"used_dltensor"), ValueError, "k: .*used"),
}


@pytest.mark.parametrize("way", READABLE)
def test_dlpack_capsules_are_read_as_the_protocol_says_and_released_once(way):
    q, k, v = problem()
    producer = READABLE[way](k)
    assert np.array_equal(attend.attention(q, producer, v), attend.attention(q, k, v))
    gc.collect()
    assert producer.deleted == 1


def test_tables_and_weights_may_be_dlpack_capsules_and_are_released_once():
    q, k, v = problem()
    rng = np.random.default_rng(1)
    table, w = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    of = lambda table, w: attend.attention(q, k, v, relative=table, query_offset=0, compatibility=attend.additive(w))
    capsules = Producer(table), Producer(w, version=(1, 1), flags=1)
    assert np.array_equal(of(*capsules), of(table, w))
    refused = Producer(table), Producer(w, code=5)
    with pytest.raises(TypeError, match="^additive: "):
        of(*refused)
    gc.collect()
    assert [one.deleted for one in capsules] == [1, 1] and all(one.settled() for one in refused)


@pytest.mark.parametrize("version", [None, (1, 1)])
@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_read_and_written_through_capsules(dtype, version):
    arrays, y = problem(dtype=dtype), np.zeros((2, 4, 5, 6), dtype)
    code = 4 if dtype == "bfloat16" else 2
    producers = [Producer(x, code=code, version=version) for x in (*arrays, y)]
    assert attend.attention(*producers[:3], out=producers[3]) is producers[3]
    want = attend.attention(*arrays)
    assert np.array_equal(y, want) and all(one.settled() for one in producers)
    made = attend.attention(Producer(arrays[0], code=code, version=version), *arrays[1:])
    assert type(made) is np.ndarray and made.dtype == dtype and np.array_equal(made, want)


@pytest.mark.parametrize("way", UNREADABLE)
def test_dlpack_capsules_that_cannot_be_read_are_errors_that_leak_nothing(way):
    q, k, v = problem()
    options, error, words = UNREADABLE[way]
    producer = Producer(k, **options)
    with pytest.raises(error, match=words):
        attend.attention(q, producer, v)
    assert producer.settled()


def test_a_capsule_is_released_when_another_argument_is_refused():
    q, k, v = problem()
    producer = Producer(q)
    with pytest.raises(ValueError, match="scale"):
        attend.attention(producer, k, v, scale=np.inf)
    assert producer.deleted == 1


def test_what_a_producer_raises_is_told():
    class Broken:
        def __dlpack__(self, **_):
            raise BufferError("not today")

    q, k, v = problem()
    with pytest.raises(ValueError, match="v: .*Broken.*not today"):
        attend.attention(q, k, Broken())


def test_a_read_only_capsule_and_a_read_only_array_are_no_out():
    q, k, v = problem()
    frozen = np.zeros((2, 4, 5, 6), np.float32)
    frozen.flags.writeable = False
    for out in (frozen, Producer(np.zeros((2, 4, 5, 6), np.float32), version=(1, 0), flags=1)):
        with pytest.raises(ValueError, match="out: .*writable.*read-only"):
            attend.attention(q, k, v, out=out)
    assert not frozen.any()


def test_read_only_inputs_are_read():
    q, k, v = problem()
    want = attend.attention(q, k, v)
    for x in (q, k, v):
        x.flags.writeable = False
    assert np.array_equal(attend.attention(q, k, v), want)


def test_out_is_written_in_place_and_returned_itself():
    q, k, v = problem()
    want = attend.attention(q, k, v)
    base = np.full((2, 5, 4, 13), 7, np.float32)
    for out in (np.empty((2, 4, 5, 6), np.float32), base[..., 1::2].swapaxes(1, 2), np.empty((2, 4, 5, 6), np.float32)[:, ::-1, :, ::-1]):
        assert attend.attention(q, k, v, out=out) is out
        assert np.array_equal(out, want)
    assert (base[..., ::2] == 7).all(), "what lies between the elements of out is left alone"
    result = attend.attention(q, k, v, out=out, return_lse=True)
    assert result.out is out and result.lse.shape == (2, 4, 5)


def test_a_foreign_out_is_written_through_its_capsule():
    q, k, v = problem()
    y = np.zeros((2, 4, 5, 6), np.float32)
    out = Producer(y)
    assert attend.attention(q, k, v, out=out) is out
    assert np.array_equal(y, attend.attention(q, k, v)) and out.deleted == 1


def _strided(x):
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    yield "every second column", wide[..., ::2]
    yield "columns outermost", np.ascontiguousarray(np.moveaxis(x, -1, 0)).transpose(1, 2, 3, 0)
    yield "heads innermost", x.swapaxes(1, 2).copy().swapaxes(1, 2)
    yield "backwards", x[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1]
    yield "Fortran order", np.asfortranarray(x)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    yield "at an odd address", unaligned


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_layout_gives_the_bits_of_the_contiguous_copy(dtype):
    q, k, v = problem(dtype=dtype)
    want = attend.attention(q, k, v)
    for (what, sq), (_, sk), (_, sv) in zip(*map(_strided, (q, k, v)), strict=True):
        for arrays in ((sq, k, v), (q, sk, v), (q, k, sv), (sq, sk, sv)):
            assert np.array_equal(attend.attention(*arrays), want), what


def test_broadcast_arrays_of_stride_zero_are_read_without_copies():
    q, k, v = problem(B=1)
    wide = [np.broadcast_to(x, (3, *x.shape[1:])) for x in (q, k, v)]
    y = attend.attention(*wide)
    assert_close(y, np.broadcast_to(attention(q, k, v)[0], y.shape), abs(v).max())
    assert np.array_equal(attend.attention(wide[0], k, v), y), "and batch axes broadcast by themselves"


def test_masks_and_biases_may_have_any_rank_and_strides():
    q, k, v = problem()
    rng = np.random.default_rng(3)
    for shape in ((), (7,), (1, 7), (5, 1), (4, 5, 7), (2, 1, 1, 7), (2, 4, 5, 7)):
        mask, bias = np.asarray(rng.random(shape) < 0.7), np.asarray(rng.standard_normal(shape), np.float32)
        assert_close(attend.attention(q, k, v, mask=mask), attention(q, k, v, mask=mask)[0], abs(v).max())
        assert_close(attend.attention(q, k, v, bias=bias), attention(q, k, v, bias=bias)[0], abs(v).max())
    wide = rng.random((14, 10)) < 0.7
    for mask in (wide[::2, ::2].T, wide[::-2, 1::2].T):
        assert np.array_equal(attend.attention(q, k, v, mask=mask), attend.attention(q, k, v, mask=mask.copy()))


def test_empty_arrays_may_have_any_strides():
    q, _, _ = problem(H=2)
    odd = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2, 2, 0, 8), (5, 12, 400, 6))
    assert not attend.attention(q, odd, odd).any()


def test_integers_per_batch_may_have_any_integer_dtype_and_strides():
    q, k, v = problem(B=3)
    want = attend.attention(q, k, v, key_lengths=[4, 0, 7])
    for dtype in "bhilqBHILQ":
        lengths = np.array([7, 9, 0, 9, 4], dtype)[::-2]
        assert np.array_equal(attend.attention(q, k, v, key_lengths=lengths), want), dtype
    assert np.array_equal(attend.attention(q, k, v, key_lengths=Producer(np.array([4, 0, 7]), code=0)), want)
    assert np.array_equal(attend.attention(q, k, v, key_lengths=np.array(4)), attend.attention(q, k, v, key_lengths=4))
    two = [x.reshape(3, 1, *x.shape[1:]) for x in (q, k, v)]
    assert np.array_equal(attend.attention(*two, key_lengths=[[4], [0], [7]]), want[:, None])


def test_subclasses_of_arrays_are_read_and_masked_arrays_refused():
    class Mine(np.ndarray):
        pass

    q, k, v = problem()
    y = attend.attention(q.view(Mine), k, v)
    assert type(y) is np.ndarray and np.array_equal(y, attend.attention(q, k, v))
    with pytest.raises(TypeError, match="k: .*MaskedArray"):
        attend.attention(q, np.ma.masked_array(k, k > 0), v)


def test_arrays_on_disk_are_read_where_they_are(tmp_path):
    q, k, v = problem()
    np.save(tmp_path / "k.npy", k)
    assert np.array_equal(attend.attention(q, np.load(tmp_path / "k.npy", mmap_mode="r"), v), attend.attention(q, k, v))


@pytest.mark.parametrize("wrong", [[[1.0]], (1.0,), 1.0, None, "q", b"bytes", memoryview(b"abcd"), array.array("f", [1.0])], ids=lambda x: type(x).__name__)
def test_what_is_no_array_is_a_type_error_that_names_the_argument(wrong):
    q, k, v = problem()
    for name, arrays in (("q", (wrong, k, v)), ("k", (q, wrong, v)), ("v", (q, k, wrong))):
        with pytest.raises(TypeError, match=f"^{name}: expected an array"):
            attend.attention(*arrays)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_give_torch_tensors(torch, dtype):
    q, k, v = (tensor_of(torch, x).swapaxes(1, 2).contiguous().swapaxes(1, 2) for x in problem(dtype=dtype))
    mask = torch.ones(5, 7).tril(2).bool()
    result = attend.attention(q, k, v, mask=mask, key_lengths=torch.tensor([7, 3]), return_lse=True, return_weights=True)
    want = attend.attention(*problem(dtype=dtype), mask=mask.numpy(), key_lengths=[7, 3], return_lse=True, return_weights=True)
    for given, expected in zip(result, want, strict=True):
        assert type(given) is torch.Tensor and given.dtype is getattr(torch, expected.dtype.name)
        assert np.array_equal(given.double().numpy(), expected.astype(np.float64))
    out = torch.zeros(2, 5, 4, 6, dtype=q.dtype).swapaxes(1, 2)
    assert attend.attention(q, k, v, mask=mask, key_lengths=torch.tensor([7, 3]), out=out) is out
    assert torch.equal(out, result.out)
    result.out.resize_(3)  # memory of torch's own, to do with as it likes


@pytest.mark.peers
def test_torch_views_of_the_other_sign_are_refused_by_name(torch):
    negated, q = torch.full((1, 2), 3j, dtype=torch.complex64).conj().imag, torch.zeros(1, 2)
    assert negated.is_neg()
    for name in "qkv":
        arrays = {"q": q, "k": q, "v": q, name: negated}
        with pytest.raises(ValueError, match=f"^{name}: .*resolve_neg"):
            attend.attention(arrays["q"], arrays["k"], arrays["v"])
    with pytest.raises(ValueError, match="^out: .*resolve_neg"):
        attend.attention(q, q, q, out=negated)
    assert torch.equal(attend.attention(q, q, negated.resolve_neg()), torch.full((1, 2), -3.0))


@pytest.mark.peers
def test_torch_tensors_that_require_a_gradient_are_refused_by_name(torch):
    q, k, v = (torch.from_numpy(x) for x in problem())
    bias = torch.zeros(7)
    for name, change in (("q", q), ("k", k), ("v", v), ("bias", bias)):
        change.requires_grad_()
        with pytest.raises(ValueError, match=f"{name}: .*gradient.*attend.torch"):
            attend.attention(q, k, v, bias=bias)
        change.requires_grad_(False)
    with pytest.raises(ValueError, match="scale: .*attend.torch"):
        attend.attention(q, k, v, scale=torch.tensor(1.0, requires_grad=True))
    assert attend.attention(torch.nn.Parameter(q, requires_grad=False), k, v).shape == (2, 4, 5, 6)


@pytest.mark.peers
def test_torch_tensors_that_attend_cannot_read_are_refused_by_name(torch):
    q, k, v = (torch.from_numpy(x) for x in problem())
    for wrong, error in ((q.int(), TypeError), (q.cfloat(), TypeError),
                         (q.to("meta"), ValueError), (q.to_sparse(), ValueError)):
        with pytest.raises(error, match="q: "):
            attend.attention(wrong, k, v)


@pytest.mark.peers
def test_kinds_may_be_mixed_and_q_decides(torch):
    q, k, v = problem()
    want = attend.attention(q, k, v)
    assert np.array_equal(attend.attention(q, torch.from_numpy(k), v), want)
    y = attend.attention(torch.from_numpy(q), k, v)
    assert isinstance(y, torch.Tensor) and np.array_equal(y.numpy(), want)
    assert attend.plan(q.shape, k.shape, v.shape, torch.float32) == attend.plan(q.shape, k.shape, v.shape, "float32")


@pytest.mark.parametrize("dtype", ["float32", *HALVES])
def test_jax_arrays_give_jax_arrays_where_jax_is_installed(dtype):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    arrays = problem(dtype=dtype)
    q, k, v = map(jax.numpy.asarray, arrays)
    y, lse = attend.attention(q, k, v, mask=jax.numpy.ones((5, 7), bool), return_lse=True)
    assert isinstance(y, jax.Array) and isinstance(lse, jax.Array) and y.dtype == dtype and lse.dtype == "float32"
    assert np.array_equal(np.asarray(y), attend.attention(*arrays))
    with pytest.raises(ValueError, match="out: .*read-only"):
        attend.attention(q, k, v, out=y)
