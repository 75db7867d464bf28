"""Calls: of functions and classes of the program, of objects, and of what the library table knows."""

from __future__ import annotations

import ast
from abc import abstractmethod

from accelerate_migrate.analysis import library, library_arrays, processes, tensors
from accelerate_migrate.analysis.atoms import (
    UNKNOWN,
    Array,
    Atom,
    Availability,
    Belonging,
    Bound,
    ClassRef,
    Const,
    DeviceValue,
    FunctionRef,
    Library,
    Loaded,
    Mapping_,
    ModuleRef,
    Number,
    Object,
    Origin,
    Parameters,
    Process,
    Reduction,
    Role,
    Sequence_,
    Share,
    Site,
    Tensor,
)
from accelerate_migrate.analysis.builtin_calls import call_builtin, iterated
from accelerate_migrate.analysis.frames import Arguments, Frame
from accelerate_migrate.analysis.methods import call_method, loose_tensors, owned_models
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.store import Store
from accelerate_migrate.analysis.values import (
    ANY,
    BOTTOM,
    Value,
    join,
    sequence,
    value,
)


class Calls(Store):
    """Evaluates calls. Statements and expressions are evaluated by the classes that build on this one."""

    @abstractmethod
    def expression(self, node: ast.expr, frame: Frame) -> Value:
        """What an expression may be."""

    @abstractmethod
    def assign(self, target: ast.expr, one: Value, frame: Frame) -> None:
        """Bind a target to a value."""

    @abstractmethod
    def call_function(self, ref: FunctionRef, arguments: Arguments) -> Value:
        """What a call of a function of the program returns."""

    @abstractmethod
    def construct(self, ref: ClassRef, node: ast.Call, frame: Frame, arguments: Arguments) -> Value:
        """What a call of a class of the program makes."""

    @abstractmethod
    def enter_module(self, module: Module) -> None:
        """Run the body of a module that is imported, if it has not run yet."""

    @abstractmethod
    def attribute(self, owner: Value, name: str, node: ast.Attribute | None, frame: Frame) -> Value:
        """What an attribute may be."""

    def _eval_Call(self, node: ast.Call, frame: Frame) -> Value:
        callee = self.expression(node.func, frame)
        return self.call(callee, node, frame)

    def arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        """The evaluated arguments of a call."""
        given = Arguments()
        for argument in node.args:
            one = self.expression(argument, frame)
            if not isinstance(argument, ast.Starred):
                given.positional.append(one)
                continue
            known = next((a for a in one if isinstance(a, Sequence_) and a.rest is None), None)
            if known is not None and len(one.atoms) == 1:
                given.positional.extend(known.items)
            else:
                given.unknown = True
        for keyword in node.keywords:
            one = self.expression(keyword.value, frame)
            if keyword.arg is not None:
                given.keywords[keyword.arg] = one
                continue
            mappings = one.of(Mapping_)
            given.keywords.update({k: v for m in mappings for k, v in m.items if isinstance(k, str)})
            given.unknown |= not mappings or any(m.rest is not None for m in mappings)
        return given

    def call(self, callee: Value, node: ast.Call | None, frame: Frame) -> Value:
        """What calling these alternatives may return."""
        given = self.arguments(node, frame) if node is not None else Arguments()
        results = []
        for atom in callee:
            if isinstance(atom, FunctionRef):
                if node is not None:
                    self.note_call(node, atom)
                results.append(_belonging(atom, self.call_function(atom, given)))
            elif node is None:
                results.append(ANY)
            elif isinstance(atom, ClassRef):
                results.append(self.construct(atom, node, frame, given))
            elif isinstance(atom, Library):
                results.append(self.call_library(atom.name, node, given, frame))
            elif isinstance(atom, Object):
                results.append(self.call_object(atom, node, given, frame))
            elif isinstance(atom, Bound):
                results.append(call_method(self, atom, node, given, frame))
            elif atom is UNKNOWN:
                results.append(_unknown_call(given))
            else:
                results.append(ANY)
        return join(results)

    # ---- objects that are called

    def call_object(self, atom: Object, node: ast.Call, given: Arguments, frame: Frame) -> Value:
        """What calling a model, a loss or another object returns."""
        details = self.details[atom.site]
        if atom.site.role is Role.LOSS:
            self.read(atom.site)
            return tensors.loss(details.reduction, given.all())
        forward = BOTTOM
        if details.class_def is not None:
            wanted = "forward" if atom.site.role is Role.MODEL else "__call__"
            forward = self.class_attribute(details.class_def, wanted)
        results = []
        for defined in forward.of(FunctionRef):
            ref = FunctionRef(defined.node, defined.module, value(atom))
            self.note_call(node, ref)
            if atom.site.role is Role.MODEL and defined.module is not frame.module:
                continue  # another file's model: what goes in row by row comes out row by row
            results.append(self.call_function(ref, given))
        if atom.site.role is not Role.MODEL:
            return join(results) if results else ANY
        inputs = tensors.combined(given.all())
        models = frozenset([atom.site]) | (inputs.models if inputs else frozenset())
        loaders = inputs.loaders if inputs else frozenset()
        rows = Reduction.ROWS if inputs is not None and inputs.reduction is Reduction.ROWS else Reduction.OTHER
        plain = value(Tensor(Origin.OUTPUT, rows, loaders, models))
        if not results:
            return plain
        return join(_as_output(atom_, models, loaders, plain) for atom_ in join(results))

    # ---- library functions

    def call_library(self, name: str, node: ast.Call, given: Arguments, frame: Frame) -> Value:
        """What a library function returns."""
        if name in library.WRAPPERS:
            return self._wrapped(name, node, given, frame)
        spoken = processes.called(name, given.positional[0].const() if given.positional else None)
        if spoken is not None:
            return spoken
        if name in library.SPAWNERS:
            return self._spawned(given, frame)
        role = library.constructed_role(name)
        if role is not None:
            return self._constructed_by_library(role, name, node, given, frame)
        if name in library.AVAILABLE:
            return value(Availability())
        if name in library.CURRENT_DEVICE or name == "torch.device":
            return self._device(name, given)
        if name in library.PASS_THROUGH:
            first = given.get(0, "iterable")
            return iterated(first) if first is not None else ANY
        if name in library.PARAMETERS:  # whose parameter it is shows when it is assigned
            return (given.get(0, "data") or ANY) | value(Parameters(frozenset()))
        if name.startswith("builtins."):
            return call_builtin(self, name[9:], node, given, frame)
        if library_arrays.makes_fresh_tensor(name):
            told = given.keywords.get("device")
            return value(Tensor(Origin.OTHER if told is not None else Origin.FRESH))
        if _makes_array(name, given):
            return value(Array())
        if name == "importlib.import_module" and given.positional:
            return join(self._imported(atom, frame) for atom in given.positional[0])
        if name == "torch.load":
            return value(Loaded(frame.module.path, node.lineno, node.col_offset))
        if name in library.APEX:
            return self._apex(name, given)
        if name == "itertools.chain":
            return join(given.positional)
        if name == "functools.partial" and given.positional:
            return given.positional[0]
        return self._torch_function(name, given)

    def _imported(self, atom: Atom, frame: Frame) -> Value:
        """``importlib.import_module("app.models")``: a file of the program, or a library that matters here."""
        named = atom.value if isinstance(atom, Const) else None
        if not isinstance(named, str) or named.startswith("."):
            return ANY
        found = self.program.find(named, frame.module)
        if found is not None:
            self.enter_module(found)
            return value(ModuleRef(found))
        return value(Library(named)) if named.split(".")[0] in library.NAMED_AS_TEXT else ANY

    def _torch_function(self, name: str, given: Arguments) -> Value:
        last = name.rsplit(".", 1)[-1]
        if library.is_functional_loss(name):
            return tensors.loss(tensors.loss_reduction(given.keywords), given.positional)
        tensor = tensors.combined(given.all())
        if tensor is None:
            return ANY if not name.startswith("torch.nn.functional.") else value(Tensor(Origin.OTHER))
        if name in library_arrays.COUNTING:
            origin = tensor.origin if name.startswith("torch.") else Origin.ARRAY
            return value(Tensor(origin, Reduction.SUM, tensor.loaders, tensor.models))
        first = given.positional[0] if given.positional else BOTTOM
        if name.startswith("torch.") and (last in tensors.REDUCING or last in tensors.PAIRS):
            if not any(isinstance(a, Sequence_) for a in first):
                return tensors.reduced(tensor, last, given.positional[1:], given.keywords)
        if name.startswith(("torch.", "numpy.")):
            return value(tensor)
        return ANY

    def _apex(self, name: str, given: Arguments) -> Value:
        """What goes into ``amp.initialize`` and ``amp.scale_loss`` comes out again, as far as training is concerned."""
        first = given.get(0, "models" if name.endswith("initialize") else "loss") or ANY
        if name == "apex.amp.initialize":
            optimizers = given.get(1, "optimizers")
            return first if optimizers is None else sequence([first, optimizers])
        if name == "apex.amp.scale_loss":
            return first
        for site in first.sites(Role.OPTIMIZER):
            self.read(site)
        owners = [self.details[site].owners or BOTTOM for site in first.sites(Role.OPTIMIZER)]
        return value(Parameters(frozenset(site for owner in owners for site in owner.sites(Role.MODEL))))

    def _device(self, name: str, given: Arguments) -> Value:
        spelled = given.get(0, "type") if name == "torch.device" else None
        kinds = {
            str(a.value).split(":")[0] if isinstance(a, Const) else getattr(a, "kind", "") for a in spelled or BOTTOM
        }
        return value(DeviceValue(kind=kinds.pop() if len(kinds) == 1 else ""))

    def _wrapped(self, name: str, node: ast.Call, given: Arguments, frame: Frame) -> Value:
        inner = given.get(0, "module")
        if inner is None:
            return ANY
        if name == "copy.deepcopy":
            return ANY if inner.sites(Role.MODEL) else inner
        if name in library.DISTRIBUTED_DATA_PARALLEL | library.DATA_PARALLEL:
            for site in inner.sites(Role.MODEL):
                self.details[site].wrappers.add(node)
        if name not in library.DATA_PARALLEL:
            return inner
        if inner.may_be_unknown():  # whatever it is, what DataParallel wraps is a model
            inner = value(*(a for a in inner if a is not UNKNOWN), Object(self.site(Role.MODEL, node, frame, name)))
        for site in inner.sites(Role.MODEL):
            self.details[site].data_parallel = True
            self.details[site].wrappers.add(node)
        return inner

    def _spawned(self, given: Arguments, frame: Frame) -> Value:
        """``mp.spawn(worker, args=(…))``: the worker is called with the number of its process in front.

        Where the script calls the worker itself on one device, that call says what its arguments are.
        """
        worker, passed = given.get(0, "fn"), given.get(1, "args")
        rank = value(Process(Share.RANK))
        rest = next((list(a.items) for a in passed or BOTTOM if isinstance(a, Sequence_) and a.rest is None), None)
        called = {n.func.id for n in frame.module.walk() if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        for atom in worker.of(FunctionRef) if worker is not None else []:
            if getattr(atom.node, "name", "") in called:
                continue
            passed_on = [processes.one_each(one) for one in rest or []]
            self.call_function(atom, Arguments([rank, *passed_on], unknown=rest is None and passed is not None))
        return ANY

    def _constructed_by_library(self, role: Role, name: str, node: ast.Call, given: Arguments, frame: Frame) -> Value:
        site = self.site(role, node, frame, name)
        self.constructed(site, given)
        details = self.details[site]
        if role is Role.OPTIMIZER and _is_given_tensors(node, frame.module):
            details.owns_tensors = True
        if role is Role.LOADER and "collate_fn" in given.keywords:
            details.own_collate = given.keywords["collate_fn"].const() is not None
        if role is Role.LOSS:
            reduction = tensors.loss_reduction(given.keywords)
            if details.reduction is not reduction:
                details.reduction = reduction
                self.clock.change(site)
            details.has_parameters = (
                "weight" in given.keywords or "pos_weight" in given.keywords or bool(given.positional)
            )
        return value(Object(site))

    def add_group(self, site: Site, arguments: Arguments) -> None:
        """Keep what ``add_param_group`` gives an optimizer."""
        details = self.details[site]
        owned = owned_models(arguments.all())
        details.owns_tensors |= bool(loose_tensors(arguments.all()))
        if owned and details.owners is not None and not owned <= details.owners.sites():
            details.owners |= value(*map(Object, owned))
            self.clock.change(site)

    def constructed(self, site: Site, arguments: Arguments) -> None:
        """Keep whose parameters an optimizer owns, and whose optimizer a scheduler drives."""
        if site.role is Role.OPTIMIZER:
            owned = owned_models(arguments.all())
            owned |= {s for v in arguments.all() for s in v.sites(Role.MODEL)}  # create_optimizer(args, model)
            unresolved = ANY if not owned else BOTTOM
            given = arguments.get(0, "params")
            self.details[site].owns_tensors |= given is not None and bool(loose_tensors([given]))
            found = join([value(*map(Object, owned)), unresolved])
        elif site.role is Role.SCHEDULER:
            found = join(value(Object(s)) for v in arguments.all() for s in v.sites(Role.OPTIMIZER))
        else:
            return
        details = self.details[site]
        known = details.owners
        details.owners = found if known is None else known | found
        if details.owners != known:
            self.clock.change(site)


def _is_given_tensors(node: ast.Call, module: Module) -> bool:
    """Whether an optimizer is given ``[x]`` of an ``x = ….requires_grad_()``: no model, since it stands in a list."""
    given = node.args[0] if node.args else None
    if not isinstance(given, (ast.List, ast.Tuple)) or not given.elts:
        return False
    return all(isinstance(one, ast.Name) and one.id in module.asked_for_gradients for one in given.elts)


def _makes_array(name: str, given: Arguments) -> bool:
    """Whether calling this qualified name makes a NumPy array, and not of tensors."""
    if name in library_arrays.SIZED_ARRAYS:
        size = given.get(library_arrays.SIZED_ARRAYS[name], "size")
        return size is not None and size.const() is not None
    takes_nothing = name.startswith("numpy.random.") and not given.all()  # a single number
    return name in library_arrays.ARRAYS and not takes_nothing and tensors.combined(given.all()) is None


def _belonging(method: FunctionRef, result: Value) -> Value:
    """What a method gave; where that is unknown, it belongs to the models that it is a method of."""
    models = method.owner.sites(Role.MODEL) if method.owner is not None else frozenset()
    if not models:
        return result
    unknown = value(Belonging(models), UNKNOWN)
    return join(
        unknown
        if atom is UNKNOWN
        else value(Sequence_(atom.items, unknown, atom.is_tuple))
        if isinstance(atom, Sequence_) and atom.rest == ANY
        else value(atom)
        for atom in result
    )


def _unknown_call(given: Arguments) -> Value:
    """A call of something unknown: a tensor of unknown relation if tensors go in, else anything."""
    tensor = tensors.combined(given.all())
    if tensor is None or tensor.origin in (Origin.FRESH, Origin.ARRAY):
        return ANY
    return value(Tensor(Origin.OTHER, Reduction.OTHER, tensor.loaders, tensor.models), UNKNOWN)


def _as_output(atom: Atom, models: frozenset[Site], loaders: frozenset[Site], plain: Value) -> Value:
    """What a model's ``forward`` returned, as seen outside: tensors on the device, of this model."""
    if isinstance(atom, Tensor):
        return value(Tensor(Origin.OUTPUT, atom.reduction, atom.loaders | loaders, models))
    if isinstance(atom, Sequence_):
        items = tuple(join(_as_output(a, models, loaders, plain) for a in item) for item in atom.items)
        rest = join(_as_output(a, models, loaders, plain) for a in atom.rest) if atom.rest else None
        return value(Sequence_(items, rest, atom.is_tuple))
    if isinstance(atom, Mapping_):
        entries = tuple((k, join(_as_output(a, models, loaders, plain) for a in v)) for k, v in atom.items)
        rest = join(_as_output(a, models, loaders, plain) for a in atom.rest) if atom.rest else None
        return value(Mapping_(entries, rest))
    if isinstance(atom, (Number, Const)):
        return value(atom)
    return plain
