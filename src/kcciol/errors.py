"""The one exception that means "the user can mend this": the command line prints it and exits with 2."""


class UserError(Exception):
    """Bad input. The message is one sentence that names the thing, its value and the remedy."""


class Busy(UserError):
    """Another process works on it: it can be waited for."""
