"""AM157: with ``--checkpoints state``, what training resumes from is a state of the accelerator."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.state_files import ResumedState, SavedState
from accelerate_migrate.analysis.training_states import TrainingStates, find_states
from accelerate_migrate.edits import AddArgument, AddImport, Insert
from accelerate_migrate.findings import Checkpoints, Target
from accelerate_migrate.rules.base import Context, Rule, short

_EXTRAS = "extra_state.pt"


def apply(context: Context) -> None:
    """Turn dicts that training resumes from, and the code that reads them back, into states."""
    if context.options.checkpoints is not Checkpoints.STATE:
        return
    states = find_states(context.plan)
    touched = [*(s.statement for s in states.saves), *(d for s in states.saves for d in s.displays)]
    touched += [node for r in states.resumes for node in (*r.reads, *r.loads)]
    if states.kept or not all(map(context.may_change, touched)):
        for save in states.saves:
            reason = states.kept or "a comment leaves some of its lines alone"
            context.note(save.call, f"kept as a file, not as a state: {reason}")
        return
    done: set[ast.Dict] = set()
    for save in states.saves:
        _save(context, states, save, done)
    for resume in states.resumes:
        _resume(context, resume)
    for test in states.tests_of_files:
        assert isinstance(test.func, (ast.Attribute, ast.Name))
        context.replace(test.func, "os.path.isdir")
        context.edit(AddImport("os", "", context.plan.module.root(test)))
        context.migrated(test, f"{short(test)}: a state is a folder")


def _save(context: Context, states: TrainingStates, save: SavedState, done: set[ast.Dict]) -> None:
    accelerator = context.accelerator(save.call)
    saved = f"{accelerator}.save_state({_escaped(_text(context, save.path))})"
    held = save.displays[0] if len(save.displays) == 1 else None
    if held is save.call.args[0] and not save.later and all(states.restored(v) is not None for v in held.values):
        context.replace_statement(save.statement, saved)
        context.migrated(save.call, f"{short(save.call.func)} -> {accelerator}.save_state")
    else:
        for display in save.displays:
            if display not in done:
                done.add(display)
                template, holes = _without(context, states, display)
                context.replace(display, template, *holes)
        for statement in save.later:
            if states.restored(statement.value) is not None:
                context.delete_emptying(statement)
        context.edit(Insert(save.statement, saved))
        _beside(context, save.path)
        context.migrated(
            save.call,
            f"{accelerator}.save_state keeps what is prepared, in a folder; what else is saved is its {_EXTRAS}",
        )
    for copy in save.copies:
        assert isinstance(copy.func, ast.Attribute)
        context.replace(copy.func, "{0}.copytree", copy.func.value)
        context.edit(AddArgument(copy, "True", name="dirs_exist_ok"))
        context.migrated(copy, f"{short(copy.func)} -> copytree: a state is a folder")
    if save.copies and context.options.target is Target.ACCELERATE:
        context.edit(Insert(save.statement, f"{accelerator}.wait_for_everyone()", after=True))


def _resume(context: Context, resume: ResumedState) -> None:
    first = resume.loads[0]
    loading = f"load_state({_text(context, resume.path)})"
    if resume.group is None:
        context.replace_statement(first, _escaped(f"{context.accelerator(first)}.{loading}"))
    else:
        text = f"{context.accelerator(resume.group.anchor)}.{loading}"
        if resume.tests:
            tests = [_test(context, test, len(resume.tests) > 1) for test in resume.tests]
            text = f"if {' and '.join(tests)}:\n    {text}"
        context.after_prepare.setdefault(resume.group.anchor, []).append(_escaped(text))
    context.review(
        first,
        "a resumed run goes on where the state was saved: random states and loaders come back too, which the original "
        "began anew; checkpoints of the original are not read any more, and who else reads new ones finds a folder",
    )
    for load in resume.loads:
        if not context.is_gone(load):
            context.delete_emptying(load)
    for call, read in zip(resume.calls, resume.reads, strict=True):
        if resume.extras:
            _beside(context, call.args[0])
        else:
            context.delete_emptying(read)


def _test(context: Context, test: ast.expr, joined: bool) -> str:
    text = _text(context, test).replace("path.isfile(", "path.isdir(")
    return f"({text})" if joined and isinstance(test, (ast.BoolOp, ast.IfExp, ast.Lambda)) else text


def _beside(context: Context, path: ast.expr) -> None:
    """Let a path lead to the small file in the folder."""
    text = _text(context, path)
    quote = "'" if "'" in text and '"' not in text else '"'
    context.replace(path, f"os.path.join({{0}}, {quote}{_EXTRAS}{quote})", path)
    context.edit(AddImport("os", "", context.plan.module.root(path)))


# ---- source


def _text(context: Context, node: ast.expr) -> str:
    """An expression as it is written, on one line."""
    module = context.plan.module.module_of(node)
    assert module is not None
    if node.lineno != node.end_lineno:
        return ast.unparse(node)
    return module.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode("utf-8")


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _without(context: Context, states: TrainingStates, display: ast.Dict) -> tuple[str, list[ast.expr]]:
    """A display without the entries of prepared objects, as a template, and what is left in it."""
    module = context.plan.module.module_of(display)
    assert module is not None
    statement = context.plan.module.statement(display)
    line = module.lines[statement.lineno - 1]
    source = _Source(module.lines, line[: len(line) - len(line.lstrip())])
    keys = [key for key in display.keys if key is not None]
    ends = [source.end(value) for value in display.values]
    starts = [source.start(key) for key in keys]
    last = source.end(display)
    pieces: list[tuple[str, str, str]] = []  # before a hole, the value, behind it up to the next entry
    for index, (key, value) in enumerate(zip(keys, display.values, strict=True)):
        following = starts[index + 1] if index + 1 < len(starts) else last
        opening = source.between(starts[index], source.start(value))
        behind = source.between(ends[index], following)
        closing = source.between(source.end(key), source.start(value)).count("(")
        cut = 0
        for _ in range(closing):
            cut = behind.index(")", cut) + 1
        pieces.append((opening, behind[:cut], behind[cut:]))
    kept = [i for i, value in enumerate(display.values) if states.restored(value) is None]
    holes = [display.values[i] for i in kept]
    if not kept:
        return "{{}}", []
    template = _escaped(source.between(source.start(display), starts[0]))
    for number, index in enumerate(kept):
        opening, closing_text, behind = pieces[index]
        if number + 1 == len(kept):
            behind = pieces[-1][2]
        template += _escaped(opening) + f"{{{number}}}" + _escaped(closing_text) + _escaped(behind)
    return template, holes


class _Source:
    """A file's text by places, its further lines without the indentation of the block (which edits put in front)."""

    def __init__(self, lines: list[bytes], indentation: bytes) -> None:
        self._lines, self._indentation = lines, indentation

    def start(self, node: ast.expr) -> tuple[int, int]:
        return node.lineno - 1, node.col_offset

    def end(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return node.end_lineno - 1, node.end_col_offset

    def between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """The text from one place to another."""
        if start[0] == end[0]:
            return self._lines[start[0]][start[1] : end[1]].decode("utf-8")
        further = [*self._lines[start[0] + 1 : end[0]], self._lines[end[0]][: end[1]]]
        parts = [self._lines[start[0]][start[1] :], *(line.removeprefix(self._indentation) for line in further)]
        return b"\n".join(parts).decode("utf-8")


RULE = Rule(
    code="AM157",
    name="training-state",
    summary="With `--checkpoints state`, what training resumes from becomes `save_state` and `load_state`.",
    why="A state is written whole or not at all, under every strategy, and holds all that is prepared, with random "
    "states and where the loaders stand: training goes on as if it had never stopped. What else the dict holds goes "
    f"to the small file `{_EXTRAS}` in the state's folder. Without the option, the script's files stay.",
    before='if args.resume:\n    state = torch.load(args.resume)\n    start_epoch = state["epoch"]\n'
    '    model.load_state_dict(state["model"])\n    optimizer.load_state_dict(state["optimizer"])\n'
    "for epoch in range(start_epoch, 10):\n    ...\n"
    '    torch.save({"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")',
    after=f'if args.resume:\n    state = torch.load(os.path.join(args.resume, "{_EXTRAS}"), map_location="cpu")\n'
    '    start_epoch = state["epoch"]\n'
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "if args.resume:\n    accelerator.load_state(args.resume)\n"
    "for epoch in range(start_epoch, 10):\n    ...\n"
    '    accelerator.save_state("last.pt")\n'
    f'    accelerator.save({{"epoch": epoch + 1}}, os.path.join("last.pt", "{_EXTRAS}"))',
    safety="Training itself is the same. A resumed run differs from the original's, which began random states and the "
    "order of samples anew; old checkpoint files are not read. A checkpoint stays a file, with a note that says why, "
    "where its dict is not seen whole, lacks a prepared object, is saved in the middle of an epoch or never read, "
    "or where something else reads, removes or renames it. Weights that are saved alone stay files. The small file is "
    "written behind the state: a process killed between the two leaves the small file that was there before.",
    apply=apply,
    order=6,
)
