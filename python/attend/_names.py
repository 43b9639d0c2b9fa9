"""Names of dtypes, and of arguments in the words of other systems."""

import re
from typing import Any, Mapping


def dtype_name(dtype: Any) -> str:
    """The name of a dtype given as text, as a NumPy dtype or scalar type, or as a torch dtype."""
    import numpy

    text = str(dtype)
    if text.startswith("torch."):
        return text[len("torch."):]
    try:
        return text if dtype is None else numpy.dtype(dtype).name  # NumPy takes None for float64
    except (TypeError, ValueError, SyntaxError):
        return text.encode("ascii", "backslashreplace").decode()  # refused by its name


def in_words_of(words: Mapping[str, str], error: Exception) -> Exception:
    """The same error, whose message calls arguments what another system calls them."""
    standing_alone = rf"\b({'|'.join(words)})\b"
    return type(error)(re.sub(standing_alone, lambda word: words[word[0]], str(error)))
