"""``tightbudget token``: rights to a ledger that is served."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightbudget import ParameterError
from tightbudget.cli.commands import Command
from tightbudget.cli.completion import budgets
from tightbudget.cli.ledger.options import ByDefault, Url, opened
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json, print_rows, print_table

if TYPE_CHECKING:
    from tightbudget.ledger.tokens import Token

commands = typer.Typer(
    name="token",
    help="Who may do what with a ledger that is served. Whoever can open the database decides.",
    no_args_is_help=True,
)

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def create(
    name: Annotated[str, typer.Option(help="Whose it is, or what for; it is written down.")],
    role: Annotated[
        str,
        typer.Option(
            help="viewer sees everything; analyst sees and charges some budgets and their parts; "
            "administrator may do everything."
        ),
    ],
    ledger: Url,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="Of an analyst; may be repeated.", autocompletion=budgets),
    ] = None,
    expires: Annotated[str, typer.Option(help="After how long: 90m, 12h, 30d.")] = "30d",
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Makes a token and shows it, this once; the ledger keeps its hash alone.

    For example: tightbudget token create --name "ada's laptop" --role analyst --budget ada
    --expires 30d --ledger sqlite:///budget.db
    """
    lasts = _time(expires)
    with opened(ledger, by=by) as it:
        from tightbudget.ledger.tokens import Tokens

        made, text = Tokens(it).create(name, role, budgets=budget or (), lasts=lasts)
    if json:
        print_json({**_as_json(made), "token": text})
    else:
        print_rows({**_rows(made), "token": text})


def list_(ledger: Url, json: AsJson = False) -> None:
    """Lists all tokens, also expired and revoked ones, without their secrets.

    For example: tightbudget token list --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        from tightbudget.ledger.tokens import Tokens

        found = Tokens(it).all()
    if json:
        print_json({"tokens": [_as_json(token) for token in found]})
    else:
        rows = [
            (t.id, t.role, ", ".join(t.budgets), _shown(t.expires), _shown(t.revoked), t.name)
            for t in found
        ]
        print_table(("id", "role", "budgets", "expires", "revoked", "name"), rows)


def revoke(
    id: Annotated[str, typer.Argument(help="The token's id: the part after tb_.")],
    ledger: Url,
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Ends a token, and the sessions that began with it, at once.

    For example: tightbudget token revoke 0123456789ab --ledger sqlite:///budget.db
    """
    with opened(ledger, by=by) as it:
        from tightbudget.ledger.tokens import Tokens

        ended = Tokens(it).revoke(id)
    if json:
        print_json(_as_json(ended))
    else:
        print_rows(_rows(ended))


commands.command(cls=Command)(create)
commands.command("list", cls=Command)(list_)
commands.command(cls=Command)(revoke)


def _time(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})([mhd])", text, re.ASCII)
    if found is None:
        raise ParameterError(f"expires must be a number with m, h or d, such as 30d, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _as_json(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "budgets": list(token.budgets),
        "created": token.created.isoformat(),
        "expires": token.expires.isoformat(),
        "revoked": None if token.revoked is None else token.revoked.isoformat(),
    }


def _rows(token: Token) -> dict[str, str]:
    rows = {"id": token.id, "name": token.name, "role": token.role}
    if token.budgets:
        rows["budgets"] = ", ".join(token.budgets)
    rows["expires"] = _shown(token.expires)
    if token.revoked is not None:
        rows["revoked"] = _shown(token.revoked)
    return rows


def _shown(time: datetime | None) -> str:
    return "" if time is None else time.isoformat(timespec="seconds")
