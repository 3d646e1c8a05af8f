"""PackedLinear and rms_norm against torch."""

import pytest
import torch

from draftproof import native

SIZES = [(1, 1), (5, 3), (32, 16), (33, 17), (100, 48), (192, 576), (7, 130)]


def reference(x, w, bias):
    y = x.to(w.dtype).double() @ w.double().T
    return y if bias is None else y + bias.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n,k", SIZES)
def test_matches_torch(dtype, n, k):
    torch.manual_seed(n * 1000 + k)
    for rows in (1, 2, 3, 7, 12, 13, 16, 25, 70):
        bias = torch.randn(n) if rows % 2 else None
        w = torch.randn(n, k).to(dtype)
        x = torch.randn(rows, k)
        y = native.PackedLinear(w, bias)(x)
        assert y.dtype == torch.float32 and y.shape == (rows, n)
        torch.testing.assert_close(y.double(), reference(x, w, bias), rtol=1e-4, atol=2e-5 * k**0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_input_is_used_as_it_is(dtype):
    torch.manual_seed(0)
    for k in (6, 31):
        linear = native.PackedLinear(torch.randn(20, k).to(dtype))
        x = torch.randn(5, k).bfloat16()
        assert torch.equal(linear(x), linear(x.float()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_independent_of_company_and_threads(dtype, two_threads):
    torch.manual_seed(1)
    linear = native.PackedLinear(torch.randn(300, 70).to(dtype), torch.randn(300))
    x = torch.randn(600, 70)
    two_threads(1)
    alone = torch.cat([linear(row[None]) for row in x])
    for threads in (1, 2, 3):
        two_threads(threads)
        for rows in (*range(1, 40), 64, 70, 505, 600):
            pick = torch.randperm(600)[:rows]
            assert torch.equal(linear(x[pick]), alone[pick])


def test_empty_and_wrong_inputs():
    linear = native.PackedLinear(torch.randn(8, 4))
    assert linear(torch.empty(0, 4)).shape == (0, 8)
    for x, text in [
        (torch.randn(2, 5), r"x: expected shape \[any, 4\], got \[2, 5\]"),
        (torch.randn(4), "x: expected shape"),
        (torch.randn(2, 4).double(), "x: expected dtype"),
        (torch.randn(4, 2).T, "x: expected a contiguous"),
        (torch.randn(2, 4, device="meta"), "x: expected a CPU tensor"),
    ]:
        with pytest.raises(ValueError, match=text):
            linear(x)
    with pytest.raises(ValueError, match="bias: expected shape"):
        native.PackedLinear(torch.randn(8, 4), torch.randn(4))
    with pytest.raises(ValueError, match="weight: expected dtype"):
        native.PackedLinear(torch.ones(8, 4, dtype=torch.int64))


def test_rms_norm():
    torch.manual_seed(2)
    for width in (8, 31, 576):
        x, w = torch.randn(4, width), torch.rand(width)
        want = torch.nn.functional.rms_norm(x, (width,), w, 1e-5)
        torch.testing.assert_close(native.rms_norm(x, w, 1e-5), want)
