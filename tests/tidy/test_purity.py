"""What import contracts cannot see: calls. Deciding rooms read no world; processes start behind one door."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.source import Source, check_none, product

WORLD = {"open", "print", "input", "hash", "eval", "exec", "compile", "__import__", "breakpoint"}
"""Builtins that touch the disk, the terminal or chance (`hash` differs from run to run)."""
STARTERS = {
    "os": ("system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"),
    "asyncio": ("create_subprocess_exec", "create_subprocess_shell"),
    "loop": ("subprocess_exec", "subprocess_shell"),
    "pty": ("spawn", "fork"),
    "multiprocessing": ("Process", "Pool"),
}
ORDER_FREE = ("sorted", "sum", "any", "all", "min", "max", "len", "set", "frozenset")
MAY_START = ("gridops.files.git", "gridops_agent.supervise", "gridops.lab")


def world_calls(tree: ast.AST) -> list[tuple[int, str]]:
    """Calls of builtins that a deciding room must not make."""
    return [
        (call.lineno, call.func.id)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in WORLD
    ]


def process_calls(tree: ast.AST) -> list[tuple[int, str]]:
    """Calls that start a process without importing `subprocess`."""
    found = []
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
        ):
            owner, verb = call.func.value.id, call.func.attr
            if verb in STARTERS.get(owner, ()) or (owner == "os" and verb.startswith(("exec", "spawn"))):
                found.append((call.lineno, f"{owner}.{verb}"))
    return found


def unsorted_sets(tree: ast.AST) -> list[tuple[int, str]]:
    """Loops straight over a set: their order differs from run to run. Inside sorted(), any()... nobody sees it."""
    loops, unseen = [], set()
    for found in ast.walk(tree):
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id in ORDER_FREE:
            unseen |= set(found.args)
        elif isinstance(found, ast.For):
            loops.append((found.iter, found.lineno))
        elif isinstance(found, ast.ListComp | ast.GeneratorExp | ast.DictComp) and found not in unseen:
            loops += [(generator.iter, found.lineno) for generator in found.generators]
    return [(line, "loop over a set") for over, line in loops if _is_set(over)]


def test_deciding_rooms_touch_no_disk_terminal_or_chance_through_builtins() -> None:
    check_none(
        _where(world_calls, [source for source in product() if source.decides]), "a builtin that touches the world"
    )


def test_deciding_rooms_never_loop_over_a_set_in_its_own_order() -> None:
    check_none(_where(unsorted_sets, [source for source in product() if source.decides]), "sort before you iterate")


def test_processes_start_only_behind_their_door() -> None:
    check_none(
        _where(process_calls, [source for source in product() if not source.name.startswith(MAY_START)]),
        "a process is started outside its door",
    )


@pytest.mark.parametrize(
    ("finder", "text"),
    [
        (world_calls, "x = hash('a')"),
        (world_calls, "with open('f') as f: pass"),
        (process_calls, "os.execv('a', [])"),
        (process_calls, "await asyncio.create_subprocess_exec('a')"),
        (unsorted_sets, "for x in {1, 2}: pass"),
        (unsorted_sets, "y = [x for x in set(z)]"),
        (unsorted_sets, "for x in set(a) | set(b): pass"),
    ],
)
def test_the_finders_find(finder: object, text: str) -> None:
    assert callable(finder)
    wrapped = "async def f():\n  " + text
    assert len(finder(ast.parse(wrapped))) == 1


@pytest.mark.parametrize(
    "text", ["for x in sorted({1}): pass", "y = {x for x in set(z)}", "n = sum(1 for x in set(z))"]
)
def test_order_free_uses_of_a_set_are_fine(text: str) -> None:
    assert unsorted_sets(ast.parse(text)) == []


def _is_set(over: ast.AST) -> bool:
    if isinstance(over, ast.BinOp) and isinstance(over.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(over.left) or _is_set(over.right)
    if isinstance(over, ast.Set | ast.SetComp):
        return True
    return isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("set", "frozenset")


def _where(finder: object, sources: list[Source]) -> list[str]:
    assert callable(finder)
    return [f"{source.shown}:{line} {what}" for source in sources for line, what in finder(source.tree)]
