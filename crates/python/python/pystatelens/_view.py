"""Shows a checkpoint in a cell of a notebook."""

from __future__ import annotations

import functools
import gzip
from importlib import resources
from pathlib import Path as PathOnDisk
from typing import TYPE_CHECKING, Any, Protocol, cast

from . import _native
from ._arguments import refused
from ._checkpoint import Checkpoint, open
from ._tensor import Tensor
from .errors import StatelensError

if TYPE_CHECKING:
    from ._arguments import Path
    from ._checkpoint import Source

HOSTED = "https://statelens.github.io/statelens/"
"""The page of the latest release."""


class View(Protocol):
    """A checkpoint in a cell of a notebook: a widget of Jupyter, with the methods of `ipywidgets.DOMWidget`."""

    checkpoint: Checkpoint
    """The checkpoint that is shown."""
    selected: str | None
    """The key that is selected in the page, or `None`. It is a trait: `observe` reports its changes."""

    @property
    def tensor(self) -> Tensor | None:
        """The tensor that is selected, or `None`. Its values are read on request."""

    def close(self) -> None:
        """Removes the page from the notebook."""


def view(source: Checkpoint | Source, *, height: int = 560, page: Path | None = None) -> View:
    """Shows a checkpoint in a cell of a notebook: the page of Statelens, which reads what it shows through the
    connection to the kernel. Nothing is uploaded, and no server is started.

    `source` is an open checkpoint, or what `pystatelens.open` takes. `height` is in pixels. Released packages hold the
    page. `page` names another one: the path of a `statelens.html`, or the address of a hosted page, which the browser
    loads.

    In a cell, `view = pystatelens.view("model.safetensors")` and `view` in the last line show it. In a later
    cell, `view.selected` is the key that is selected in the page, and `view.tensor` its tensor.

    Needs `anywidget`, which `pip install "pystatelens[notebook]"` installs; raises `ImportError` without it.
    """
    widget = _widget()
    found = _page(page)
    checkpoint = source if isinstance(source, Checkpoint) else open(source)
    return cast("View", widget(checkpoint, found, height))


def _page(given: Path | None) -> bytes | str:
    """Returns the page, compressed, or its address."""
    if isinstance(given, str) and given.startswith(("https://", "http://")):
        return given
    if given is not None:
        return gzip.compress(PathOnDisk(given).read_bytes(), 1)
    if (packaged := _native.page()) is None:
        what = "this build of pystatelens does not have the page"
        advice = (
            "Pass as `page` the path of `statelens.html`, which each release has and `cargo xtask dist` makes, or"
            f' "{HOSTED}", which the browser then loads.'
        )
        raise refused(what, advice)
    return gzip.compress(packaged, 1)


@functools.cache
def _widget() -> Any:
    """Returns the class of widgets, whose base is in a package that may be missing."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError(
            'a view needs anywidget; install it with `pip install "pystatelens[notebook]"`, and restart the kernel'
        ) from error

    base: Any = anywidget.AnyWidget

    class Widget(base):  # type: ignore[misc]
        """A checkpoint in a cell of a notebook."""

        _esm = (resources.files(__package__) / "_view.js").read_text("utf-8")

        _files: Any = traitlets.List().tag(sync=True)
        _main = traitlets.Int().tag(sync=True)
        _height = traitlets.Int().tag(sync=True)
        _address = traitlets.Unicode().tag(sync=True)
        selected = traitlets.Unicode(None, allow_none=True).tag(sync=True)

        def __init__(self, checkpoint: Checkpoint, page: bytes | str, height: int) -> None:
            native = checkpoint._native
            main, files = _native.files(native)
            numbers = [number for number, _, _ in files]
            names = [{"name": name, "size": size} for _, name, size in files]
            address = page if isinstance(page, str) else ""
            super().__init__(_files=names, _main=numbers.index(main), _height=height, _address=address)
            self.checkpoint = checkpoint
            self._native = native
            self._numbers = numbers
            self._page = page
            self.on_msg(self._answer)

        @property
        def tensor(self) -> Tensor | None:
            value = None if self.selected is None else self.checkpoint.get(self.selected)
            return value if isinstance(value, Tensor) else None

        def _answer(self, _: object, request: Any, __: object) -> None:
            """Answers a request of the frame in the browser."""
            about = request.get("id")
            if request.get("type") == "page":
                self.send({"type": "page", "id": about}, [self._page])
                return
            try:
                number = self._numbers[request["file"]]
                read = _native.read_file(self._native, number, request["offset"], request["length"])
            except (StatelensError, OSError, LookupError, TypeError, OverflowError) as error:
                self.send({"type": "error", "id": about, "message": str(error)})
            else:
                self.send({"type": "bytes", "id": about}, [read])

        def __repr__(self) -> str:
            return f"<View of {self.checkpoint!r}>"

    return Widget
