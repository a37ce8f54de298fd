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
