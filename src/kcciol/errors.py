"""The one exception that means "the user can mend this": the command line prints it and exits with 2."""


class UserError(Exception):
    """Bad input. The message is one sentence that names the thing, its value and the remedy."""


class Busy(UserError):
    """Another process works on it: it can be waited for."""


def require_kind(value: object, kind: type, name: str, example: str) -> None:
    """Refuse a value of another kind, as by a slip in a call.

    >>> require_kind("glyphs", dict, "config", "config.data")
    Traceback (most recent call last):
    kcciol.errors.UserError: config is a str, but must be a dict, such as config.data.
    """
    if not isinstance(value, kind):
        raise UserError(f"{name} is a {type(value).__name__}, but must be a {kind.__name__}, such as {example}.")


def lacks_memory(error: BaseException) -> bool:
    """Whether there was too little memory, as Python, or PyTorch, says it.

    >>> lacks_memory(MemoryError()), lacks_memory(RuntimeError("CUDA out of memory")), lacks_memory(RuntimeError("no"))
    (True, True, False)
    """
    said = str(error) if isinstance(error, RuntimeError) else ""
    return isinstance(error, MemoryError) or "allocate" in said or "out of memory" in said


def quoted(value: object, longest: int = 200) -> str:
    """A value in a sentence: its `repr`, cut where it is too long to be read.

    >>> quoted("cat"), len(quoted("cat" * 1000)), quoted(16**5000)
    ("'cat'", 204, 'a number of 20001 bits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write very large numbers
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    except Exception:  # what is nested without end, or does not know how to show itself
        return f"a {type(value).__name__}"
    return text if len(text) <= longest else text[:longest] + " ..."


def visible(value: object, keep: str = "") -> str:
    r"""Text for a terminal: control characters, which it would obey, are written out, but for those to keep.

    >>> visible("a\nb \x1b[31mred"), visible("a\nb", keep="\n")
    ('a\\nb \\x1b[31mred', 'a\nb')
    """
    text = str(value)
    if text.isprintable():  # as nearly all is
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
