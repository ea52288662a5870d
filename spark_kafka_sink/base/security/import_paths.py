"""Users' classes that options name by import path.

Owns: the two forms of a path (``package.module:Name`` and ``package.module.Name``), the error for a
path that can't be imported, and the safe description of an exception of a user's code. Never: the
interface of the class, which the caller checks.

The driver also calls :func:`find`, only as a check, so that a wrong path is an error before any
task starts.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from inspect import getattr_static
from types import FunctionType, MethodType, ModuleType

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.allow_lists import (
    NotAllowedError,
    check_import,
    is_import_listed,
    limits_imports,
)
from spark_kafka_sink.base.security.jaas_config import without_shading
from spark_kafka_sink.base.security.password import Password, Text, text_of

_IMPORTABLE = (
    "the module must be importable on the driver and on every executor (installed there, or shipped"
    " with addPyFile)"
)
_OF_THE_JVM = (
    "a class of the JVM can't run in Python workers: remove the option, or name a Python class that"
    " does the same, as package.module:Name"
)
_JVM_PACKAGES = ("com.", "io.", "org.", "net.", "java.", "scala.", "software.")


def find(path: Text, option: str) -> object:
    """Imports and returns the object at the import path ``path``.

    Raises ConfigError, which names ``option``, if the object can't be imported. Raises
    NotAllowedError in two cases: the operator's list does not have the path (then nothing is
    imported), or the listed module does not itself define the object.
    """
    shown = f"{option}: {safe_text(f'{path}')}"
    module, attribute = _parts(path, option)
    check_import(f"{module}.{attribute}", shown)
    try:
        found: object = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
            _refuse_what_is_defined_elsewhere(found, shown)
    except NotAllowedError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        # Python's ImportError has names of modules; any other may contain anything, and so may
        # the value of a reference.
        named = isinstance(error, ImportError | AttributeError) and error.name is not None
        reveal = named and not isinstance(path, Password)
        missing = isinstance(error, ModuleNotFoundError)
        hint = _OF_THE_JVM if missing and names_jvm_classes(text_of(path)) else _IMPORTABLE
        why = f"{type(error).__name__}: {safe_text(str(error))}" if reveal else place_of(error)
    else:
        return found
    # Not within the handler: the context would bring that text, and a traceback shows it.
    raise ConfigError(f"{shown} can't be imported: {why}", hint=hint, kind=Kind.IMPORT_PATH)


def find_function(path: str, option: str, argument: str) -> Callable[[object], object]:
    """The callable at the import path ``path``, which must accept one ``argument``.

    Raises the same errors as :func:`find`, and ConfigError if the object can't be called with one
    argument.
    """
    found = find(path, option)
    if not callable(found):
        raise ConfigError(
            f"{option}: {safe_text(path)} can't be called",
            hint=f"name a function that takes one argument, the {argument}",
            kind=Kind.IMPORT_PATH,
        )
    return found


def names_jvm_classes(paths: str) -> bool:
    """Whether an item of the comma-separated list looks like a JVM class, such as
    ``com.example.Audit``.
    """
    names = [without_shading(one.strip()) for one in paths.split(",")]
    return any(n.startswith(_JVM_PACKAGES) and n.rpartition(".")[2][:1].isupper() for n in names)


def is_import_path(name: str) -> bool:
    """Whether the text looks like a Python import path, and not like a class of Kafka."""
    kafkas = without_shading(name).startswith("org.apache.kafka.")
    return ("." in name or ":" in name) and not kafkas


def make(path: Text, option: str) -> object:
    """The object at the import path ``path``. If the object is a class, returns a new instance,
    created without arguments.
    """
    found = find(path, option)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's class may raise anything
        why = place_of(error)
    raise ConfigError(
        f"{option}: {safe_text(f'{path}')} can't be made without arguments: {why}",
        hint="a class named in an option is called without arguments",
        kind=Kind.IMPORT_PATH,
    )


def place_of(error: BaseException) -> str:
    """The class of an exception of user code, and the place in the code. The text of the exception
    is left out, because it may contain a row.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    file = last.filename.rpartition("/")[2]
    return f"{type(error).__name__} in {last.name} ({file}:{last.lineno})"


def _refuse_what_is_defined_elsewhere(found: object, shown: str) -> None:
    """If the operator has set a list, raises NotAllowedError unless a listed module defines the
    object ``found``.

    Every step of a path must lead to a listed module, to a class or function defined in a listed
    module, or to an instance of such a class. Three kinds of objects are refused: what a listed
    module only imports (``os.abort`` in a module that imports os), another module, and a method of
    Python or of a C library (``log.handlers.clear``).
    """
    if not limits_imports():
        return
    # A class and a function know where they are from. An object is not asked: it may answer
    # anything, and import more.
    named = issubclass(type(found), (type, FunctionType, MethodType))
    ask = getattr if named else getattr_static
    module = ask(found, "__module__", None)
    name = ask(found, "__qualname__", type(found).__qualname__)
    own = isinstance(module, str) and module != "builtins" and type(found) is not ModuleType
    if not own or not is_import_listed(f"{module}.{name}"):
        raise NotAllowedError(
            f"{shown} comes from a module that the operator of this process does not allow",
            hint="name the object in the module that defines it",
        )


def _parts(path: Text, option: str) -> tuple[str, str]:
    module, colon, attribute = text_of(path).partition(":")
    if not colon:
        module, _, attribute = text_of(path).rpartition(".")
    if not module or not attribute:
        raise ConfigError(
            f"{option}: {safe_text(f'{path}')} is not an import path",
            hint="write package.module:Name or package.module.Name",
            kind=Kind.IMPORT_PATH,
        )
    return module, attribute
