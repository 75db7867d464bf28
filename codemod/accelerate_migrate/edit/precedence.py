"""Parentheses: whether an expression may stand in a place as it is.

A place is a field of a libcst node. It asks for a level, an expression has one, and where the expression's is lower it
gets parentheses. The levels are those of Python's grammar, loosest first.
"""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

YIELD, TUPLE, WALRUS, LAMBDA, TERNARY, OR, AND, NOT, COMPARISON = range(9)
BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, POWER, AWAIT, ATOM = range(9, 19)

_BINARY: dict[type[cst.BaseBinaryOp], int] = {
    cst.BitOr: BIT_OR,
    cst.BitXor: BIT_XOR,
    cst.BitAnd: BIT_AND,
    cst.LeftShift: SHIFT,
    cst.RightShift: SHIFT,
    cst.Add: SUM,
    cst.Subtract: SUM,
    cst.Multiply: PRODUCT,
    cst.MatrixMultiply: PRODUCT,
    cst.Divide: PRODUCT,
    cst.FloorDivide: PRODUCT,
    cst.Modulo: PRODUCT,
    cst.Power: POWER,
}
_LOOSE: dict[type[cst.BaseExpression], int] = {
    cst.Yield: YIELD,
    cst.Tuple: TUPLE,
    cst.GeneratorExp: TUPLE,
    cst.StarredElement: TUPLE,
    cst.NamedExpr: WALRUS,
    cst.Lambda: LAMBDA,
    cst.IfExp: TERNARY,
    cst.Comparison: COMPARISON,
    cst.Await: AWAIT,
}

# What a field asks for. A field that is not named takes any expression but a bare tuple, ``yield`` or ``:=``.
_PLACES: dict[tuple[type[cst.CSTNode], str], int] = {
    (cst.AnnAssign, "value"): YIELD,
    (cst.Assign, "value"): YIELD,
    (cst.AssignTarget, "target"): TUPLE,
    (cst.Attribute, "value"): ATOM,
    (cst.AugAssign, "value"): YIELD,
    (cst.Await, "expression"): ATOM,
    (cst.Call, "func"): ATOM,
    (cst.CompFor, "iter"): OR,
    (cst.CompFor, "target"): TUPLE,
    (cst.CompIf, "test"): OR,
    (cst.Comparison, "left"): BIT_OR,
    (cst.ComparisonTarget, "comparator"): BIT_OR,
    (cst.Decorator, "decorator"): WALRUS,
    (cst.Del, "target"): TUPLE,
    (cst.Element, "value"): WALRUS,
    (cst.Expr, "value"): YIELD,
    (cst.For, "iter"): TUPLE,
    (cst.For, "target"): TUPLE,
    (cst.FormattedStringExpression, "expression"): TERNARY,
    (cst.If, "test"): WALRUS,
    (cst.IfExp, "body"): OR,
    (cst.IfExp, "test"): OR,
    (cst.Return, "value"): TUPLE,
    (cst.StarredDictElement, "value"): BIT_OR,
    (cst.StarredElement, "value"): BIT_OR,
    (cst.Subscript, "value"): ATOM,
    (cst.While, "test"): WALRUS,
}

# Fields whose text lies between brackets of the node that has them: a line may end anywhere in it.
_BRACKETED: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.Call: ("args",),
    cst.ClassDef: ("bases", "keywords"),
    cst.Dict: ("elements",),
    cst.DictComp: ("key", "value", "for_in"),
    cst.FunctionDef: ("params",),
    cst.List: ("elements",),
    cst.ListComp: ("elt", "for_in"),
    cst.Set: ("elements",),
    cst.SetComp: ("elt", "for_in"),
    cst.Subscript: ("slice",),
}


def level(expression: cst.BaseExpression) -> int:
    """How tightly an expression holds together; parentheses of its own make it an atom."""
    if expression.lpar:
        return ATOM
    if isinstance(expression, cst.BinaryOperation):
        return _BINARY[type(expression.operator)]
    if isinstance(expression, cst.BooleanOperation):
        return OR if isinstance(expression.operator, cst.Or) else AND
    if isinstance(expression, cst.UnaryOperation):
        return NOT if isinstance(expression.operator, cst.Not) else SIGN
    return _LOOSE.get(type(expression), ATOM)


def asked(parent: Any, field: str) -> int:
    """The level that a field of a libcst node asks for."""
    if isinstance(parent, cst.BinaryOperation):
        own = _BINARY[type(parent.operator)]
        if own == POWER:
            return AWAIT if field == "left" else SIGN
        return own if field == "left" else own + 1
    if isinstance(parent, cst.BooleanOperation):
        own = OR if isinstance(parent.operator, cst.Or) else AND
        return own if field == "left" else own + 1
    if isinstance(parent, cst.UnaryOperation):
        return NOT if isinstance(parent.operator, cst.Not) else SIGN
    if isinstance(parent, cst.Arg):
        return WALRUS if parent.keyword is None and not parent.star else LAMBDA
    return _PLACES.get((type(parent), field), LAMBDA)


def is_bracketed(parent: Any, field: str) -> bool:
    """Whether a field lies between brackets or parentheses of ``parent`` itself."""
    own = getattr(parent, "lpar", ())
    return (
        (isinstance(own, tuple | list) and bool(own))
        or isinstance(own, cst.LeftParen)
        or field in _BRACKETED.get(type(parent), ())
    )


def parenthesized(expression: Any) -> Any:
    """The expression in one more pair of parentheses."""
    return expression.with_changes(lpar=(cst.LeftParen(), *expression.lpar), rpar=(*expression.rpar, cst.RightParen()))


def bare(expression: Any) -> Any:
    """The expression without its own parentheses, where nothing is lost with them."""
    if isinstance(expression, cst.Tuple | cst.GeneratorExp | cst.Yield) or not expression.lpar:
        return expression
    spaces = [paren.whitespace_after for paren in expression.lpar]
    spaces += [paren.whitespace_before for paren in expression.rpar]
    if any(isinstance(space, cst.ParenthesizedWhitespace) and _has_comment(space) for space in spaces):
        return expression
    return expression.with_changes(lpar=(), rpar=())


def _has_comment(space: cst.ParenthesizedWhitespace) -> bool:
    return space.first_line.comment is not None or any(line.comment is not None for line in space.empty_lines)


def fit(expression: Any, parent: Any, field: str, bracketed: bool) -> Any:
    """The expression as it may stand in a field of ``parent``; ``bracketed``: a line may end anywhere in it."""
    if not isinstance(expression, cst.BaseExpression):
        return expression
    if level(expression) < asked(parent, field) or (
        field == "value" and isinstance(parent, cst.Attribute) and isinstance(expression, cst.Integer)
    ):
        return expression if expression.lpar else parenthesized(expression)
    if not bracketed and not expression.lpar and _ends_a_line(expression):
        return parenthesized(expression)
    return expression


def _ends_a_line(expression: cst.BaseExpression) -> bool:
    """Whether a line would end within the expression, outside of any bracket of its own."""
    text = cst.Module(()).code_for_node(expression)
    if "\n" not in text and "\r" not in text:
        return False
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return True
    return False


def requoted(expression: Any, quote: str) -> Any:
    """The expression with its plain strings quoted so that it can stand inside an f-string quoted by ``quote``."""
    other = {'"': "'", "'": '"'}.get(quote)
    return expression if other is None else expression.visit(_Requote(quote, other))


class _Requote(cst.CSTTransformer):
    def __init__(self, quote: str, other: str) -> None:
        super().__init__()
        self.quote = quote
        self.other = other

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        text = updated_node.value
        if updated_node.quote != self.quote or self.other in text or "\\" in text:
            return updated_node
        return updated_node.with_changes(value=text.replace(self.quote, self.other))
