# The wheel's own stub re-exports a compiled module the checker cannot read: everything in it is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
