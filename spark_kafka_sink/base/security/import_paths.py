"""Imports the users' classes and functions whose import paths are in options.

An import path has one of two forms: ``package.module:Name`` or ``package.module.Name``. The caller
checks the methods of an imported class. :func:`place_of` describes an exception of a user's code.

The driver also calls :func:`find`, as a check. So a wrong path is an error before any task starts.
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
    """Imports the object with the import path ``path``, such as ``my_module:MyClass``, and returns
    it.

    Raises ConfigError with the option's name if the object can't be imported. If the operator has
    set an allow-list of imports, raises NotAllowedError in two cases:

    * The list does not allow ``path``. Then nothing is imported.
    * The list allows ``path``, but the object is defined in a module that is not on the list.
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
    """Imports the function with the import path ``path``. ``argument`` describes the argument of
    the function, for a hint.

    Raises the same errors as :func:`find`, and ConfigError if the object is not callable.
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
    """True if ``paths`` contains the name of a JVM class, such as ``com.example.Audit``. ``paths``
    has one or more names, separated by commas.
    """
    names = [without_shading(one.strip()) for one in paths.split(",")]
    return any(n.startswith(_JVM_PACKAGES) and n.rpartition(".")[2][:1].isupper() for n in names)


def is_import_path(name: str) -> bool:
    """True if ``name`` has a dot or a colon, like a Python import path. The name of a Java class of
    Kafka also has dots, but for such a name the result is False.
    """
    kafkas = without_shading(name).startswith("org.apache.kafka.")
    return ("." in name or ":" in name) and not kafkas


def make(path: Text, option: str) -> object:
    """Imports the object with the import path ``path``. If it is a class, creates an object of the
    class without arguments and returns this object. Otherwise returns the imported object itself.

    Raises the errors of :func:`find`. Also raises ConfigError if the class raises an exception.
    """
    found = find(path, option)
    return made_of(found, option, f"{path}") if isinstance(found, type) else found


def made_of(cls: type, option: str, name: str) -> object:
    """Calls the user's class ``cls`` without arguments and returns the new object. Raises
    ConfigError if the call raises an exception.

    The error message has the option name ``option`` and the class name ``name``. The message does
    not have the text of the exception, which may contain a secret.
    """
    try:
        return cls()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's class may raise anything
        why = place_of(error)
    raise ConfigError(
        f"{option}: {safe_text(name)} can't be made without arguments: {why}",
        hint="a class named in an option is called without arguments",
        kind=Kind.IMPORT_PATH,
    )


def place_of(error: BaseException) -> str:
    """Describes an exception of a user's code: its class, and the function, file and line that
    raised it. The text of the exception is not included, because the text can contain a row.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    file = last.filename.rpartition("/")[2]
    return f"{type(error).__name__} in {last.name} ({file}:{last.lineno})"


def _refuse_what_is_defined_elsewhere(found: object, shown: str) -> None:
    """Raises NotAllowedError if ``found``, an imported object, is not defined in a module on the
    operator's allow-list. Does nothing if the allow-list is not set.

    Two kinds of objects are allowed:

    * a class or function that a listed module defines
    * an object of such a class

    All other objects are rejected. These are examples:

    * ``os.abort``, if a listed module has imported ``os``
    * a module
    * a method of a built-in class, such as ``log.handlers.clear``, a method of ``list``
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
