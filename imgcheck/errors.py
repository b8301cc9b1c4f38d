"""The errors that end a command: each names what failed, why, and the way out."""


class ImgcheckError(Exception):
    """The tool could not do its work; the command line prints it as one line and exits with 2.

    `message` names the object and the cause; `hint`, where there is one, the way out.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ImgcheckError):
    """The command line asks for something that does not exist or does not fit together."""


class SourceError(ImgcheckError):
    """An image cannot be found, reached or understood where the reference says it is."""


class DigestError(SourceError):
    """Bytes do not hash to the digest that names them."""


class LayerError(ImgcheckError):
    """A layer is truncated, is no tar archive, or breaks the rules of a layer."""


class DocumentError(ImgcheckError):
    """A profile, host or report document cannot be read, or is of a newer major version."""


class PolicyError(ImgcheckError):
    """A policy or a baseline cannot be read, or asks for what does not exist."""


class KnowledgeError(ImgcheckError):
    """A file under rules/ does not hold what its schema says."""


class ConvertError(ImgcheckError):
    """A tree cannot be written at its destination."""


class LimitError(ImgcheckError):
    """The system gives the tool no more threads or processes."""


class ElfError(ImgcheckError):
    """A file that begins like ELF is truncated or absurd. It is reported on that file; the rest goes on."""
